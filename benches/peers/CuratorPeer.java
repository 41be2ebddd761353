import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/**
 * One round of Curator: prints lock grants a second; `wait-N` prints nothing, see waiting.py.
 * Usage: HOSTS SCENARIO PATH.
 */
public class CuratorPeer {
    /** The compiler needs its time. */
    static final long WARM_UP = 4000;

    static volatile boolean over;
    static String hosts;
    static String path;
    static int count;

    interface Work {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        String[] scenario = args[1].split("-");
        hosts = args[0];
        path = args[2];
        count = scenario.length > 1 ? Integer.parseInt(scenario[1]) : 1;
        if (scenario[0].equals("wait")) {
            waitOnceEach();
        } else if (scenario[0].equals("queue")) {
            System.out.println(queue());
        } else {
            System.out.println(rate(scenario[0].equals("handoff")));
        }
        System.exit(0);
    }

    /** Grants a second while all lock and unlock as fast as they can. */
    static double rate(boolean handOff) throws Exception {
        AtomicLong done = new AtomicLong();
        CuratorFramework shared = client();
        for (int at = 0; at < count; at++) {
            InterProcessMutex lock = handOff
                ? new InterProcessMutex(client(), path)
                : new InterProcessMutex(shared, path + "-" + at);
            start(() -> {
                while (!over) {
                    lock.acquire();
                    done.incrementAndGet();
                    lock.release();
                }
            });
        }
        Thread.sleep(WARM_UP);
        long before = done.get();
        long begun = System.nanoTime();
        Thread.sleep(1000);
        return (done.get() - before) * 1e9 / (System.nanoTime() - begun);
    }

    /** Grants a second of a queue that waits behind a holder; the second one counts. */
    static double queue() throws Exception {
        List<InterProcessMutex> locks = new ArrayList<>();
        for (int at = 0; at < count; at++) {
            locks.add(new InterProcessMutex(client(), path));
        }
        drain(locks);
        return count * 1e9 / drain(locks);
    }

    static long drain(List<InterProcessMutex> locks) throws Exception {
        CuratorFramework watcher = client();
        InterProcessMutex gate = new InterProcessMutex(watcher, path);
        gate.acquire();
        List<Thread> waiting = new ArrayList<>();
        for (InterProcessMutex lock : locks) {
            waiting.add(start(() -> {
                lock.acquire();
                lock.release();
            }));
        }
        while (watcher.getChildren().forPath(path).size() <= locks.size()) {
            Thread.sleep(20);
        }
        Thread.sleep(700);
        long begun = System.nanoTime();
        gate.release();
        for (Thread thread : waiting) {
            thread.join();
        }
        return System.nanoTime() - begun;
    }

    /** Threads of one client have the lock once each. */
    static void waitOnceEach() throws Exception {
        CuratorFramework shared = client();
        List<Thread> waiting = new ArrayList<>();
        for (int at = 0; at < count; at++) {
            InterProcessMutex lock = new InterProcessMutex(shared, path);
            waiting.add(start(() -> {
                lock.acquire();
                lock.release();
            }));
        }
        for (Thread thread : waiting) {
            thread.join();
        }
    }

    static CuratorFramework client() {
        CuratorFramework it =
            CuratorFrameworkFactory.newClient(hosts, 20000, 15000, new RetryOneTime(100));
        it.start();
        return it;
    }

    static Thread start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        thread.start();
        return thread;
    }
}
