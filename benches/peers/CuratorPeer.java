import java.util.ArrayList;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** One round of Curator: prints lock grants a second. Usage: HOSTS SCENARIO PATH. */
public class CuratorPeer {
    static volatile boolean over;

    static CuratorFramework client(String hosts) {
        CuratorFramework it =
            CuratorFrameworkFactory.newClient(hosts, 20000, 15000, new RetryOneTime(100));
        it.start();
        return it;
    }

    public static void main(String[] args) throws Exception {
        String[] scenario = args[1].split("-");
        int count = scenario.length > 1 ? Integer.parseInt(scenario[1]) : 1;
        boolean handOff = scenario[0].equals("handoff");
        AtomicLong done = new AtomicLong();
        CuratorFramework shared = client(args[0]);
        var threads = new ArrayList<Thread>();
        for (int at = 0; at < count; at++) {
            CuratorFramework own = handOff ? client(args[0]) : shared;
            InterProcessMutex lock =
                new InterProcessMutex(own, handOff ? args[2] : args[2] + "-" + at);
            threads.add(new Thread(() -> {
                try {
                    while (!over) {
                        lock.acquire();
                        done.incrementAndGet();
                        lock.release();
                    }
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            }));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        // The compiler needs its time.
        Thread.sleep(4000);
        long before = done.get();
        long begun = System.nanoTime();
        Thread.sleep(1000);
        System.out.println((done.get() - before) * 1e9 / (System.nanoTime() - begun));
        over = true;
        System.exit(0);
    }
}
