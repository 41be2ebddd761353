import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.LockInternals;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

/**
 * Curator's recipes and the WriteLock of ZooKeeper's own, driven by the lines described in
 * peer.rs. Each contender is a thread, as Curator's locks belong to the thread that took them.
 */
public class JavaPeer {
    static String hosts;
    static int timeout;
    static CuratorFramework client;

    public static void main(String[] args) throws Exception {
        hosts = args[0];
        timeout = Integer.parseInt(args[1]);
        client = CuratorFrameworkFactory.builder()
                .connectString(hosts)
                .sessionTimeoutMs(timeout)
                .connectionTimeoutMs(timeout)
                .retryPolicy(new RetryForever(50))
                .build();
        client.start();
        client.blockUntilConnected();
        say("ready", "Curator=" + version(LockInternals.class)
                + " ZooKeeper-WriteLock=" + version(WriteLock.class));

        Map<String, Contender> contenders = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            contenders.computeIfAbsent(words[0], Contender::new).hear(words);
        }
        client.close();
        System.exit(0);
    }

    static synchronized void say(String... words) {
        System.out.println(String.join(" ", words));
        System.out.flush();
    }

    /** Debian's jars do not tell their version, but each has a link beside it that does. */
    static String version(Class<?> of) throws Exception {
        File jar = new File(of.getProtectionDomain().getCodeSource().getLocation().toURI());
        String stem = jar.getName().replaceAll("(-[0-9.]+)?\\.jar", "");
        for (String name : jar.getParentFile().list()) {
            if (name.matches(stem + "-[0-9.]+\\.jar")) {
                return name.substring(stem.length() + 1, name.length() - 4);
            }
        }
        return "?";
    }

    /** Curator tells the node of a mutex to its subclasses only. */
    static String node(InterProcessMutex mutex) throws Exception {
        Method path = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        path.setAccessible(true);
        return (String) path.invoke(mutex);
    }

    interface Action {
        void run() throws Exception;
    }

    /** One contender. */
    static class Contender {
        final String id;
        final ExecutorService thread = Executors.newSingleThreadExecutor();
        Action release;
        InterProcessReadWriteLock both;

        Contender(String id) {
            this.id = id;
        }

        void hear(String[] words) {
            thread.execute(() -> {
                try {
                    obey(words);
                } catch (Throwable error) {
                    error.printStackTrace();
                    say(id, "error", error.toString().replace('\n', ' '));
                }
            });
        }

        void obey(String[] words) throws Exception {
            switch (words[1]) {
                case "lock":
                    String node = lock(words[2], words[3]);
                    if (node == null) {
                        say(id, "late");
                    } else {
                        say(id, "held", node);
                    }
                    break;
                case "release":
                    release.run();
                    say(id, "released");
                    break;
                case "downgrade":
                    say(id, "held", downgrade());
                    break;
                case "revoke":
                    Revoker.attemptRevoke(client, words[2]);
                    say(id, "done");
                    break;
                case "contenders":
                    say(id, "contenders", contenders(words[2]));
                    break;
                default:
                    throw new IllegalArgumentException(words[1]);
            }
        }

        String lock(String kind, String path) throws Exception {
            String[] parts = kind.split(":");
            switch (parts[0]) {
                case "mutex":
                    return mutex(new InterProcessMutex(client, path));
                case "revocable":
                    InterProcessMutex revocable = new InterProcessMutex(client, path);
                    revocable.makeRevocable(lock -> say(id, "revoked"));
                    return mutex(revocable);
                case "read":
                    both = new InterProcessReadWriteLock(client, path);
                    return mutex(both.readLock());
                case "write":
                    both = new InterProcessReadWriteLock(client, path);
                    return mutex(both.writeLock());
                case "semaphore":
                    return semaphore(path, parts);
                case "semaphoreMutex":
                    InterProcessSemaphoreMutex lock = new InterProcessSemaphoreMutex(client, path);
                    lock.acquire();
                    release = lock::release;
                    return "-";
                case "leader":
                    return leader(path);
                case "latch":
                    LeaderLatch latch = new LeaderLatch(client, path);
                    latch.start();
                    latch.await();
                    release = latch::close;
                    Field ours = LeaderLatch.class.getDeclaredField("ourPath");
                    ours.setAccessible(true);
                    return (String) ((AtomicReference<?>) ours.get(latch)).get();
                case "apache":
                    return apache(path);
                default:
                    throw new IllegalArgumentException(kind);
            }
        }

        String mutex(InterProcessMutex lock) throws Exception {
            lock.acquire();
            release = lock::release;
            return node(lock);
        }

        /** A reader in the thread that holds the write lock is let in at once. */
        String downgrade() throws Exception {
            both.readLock().acquire();
            both.writeLock().release();
            release = both.readLock()::release;
            return node(both.readLock());
        }

        /** One lease, or so many as the kind says, within its limit; null when that has passed. */
        String semaphore(String path, String[] kind) throws Exception {
            int permits = Integer.parseInt(kind[1]);
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, permits);
            if (kind.length == 2) {
                Lease lease = semaphore.acquire();
                release = () -> semaphore.returnLease(lease);
                return path + "/leases/" + lease.getNodeName();
            }
            int count = Integer.parseInt(kind[2]);
            Collection<Lease> leases = kind.length == 3
                    ? semaphore.acquire(count)
                    : semaphore.acquire(count, Long.parseLong(kind[3]), TimeUnit.MILLISECONDS);
            if (leases == null) {
                return null;
            }
            release = () -> semaphore.returnAll(leases);
            return path + "/leases/" + leases.iterator().next().getNodeName();
        }

        String leader(String path) throws Exception {
            Field mutex = LeaderSelector.class.getDeclaredField("mutex");
            mutex.setAccessible(true);
            AtomicReference<LeaderSelector> self = new AtomicReference<>();
            SynchronousQueue<String> elected = new SynchronousQueue<>();
            CountDownLatch over = new CountDownLatch(1);
            LeaderSelector selector =
                    new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
                        @Override
                        public void takeLeadership(CuratorFramework client) throws Exception {
                            elected.put(node((InterProcessMutex) mutex.get(self.get())));
                            over.await();
                        }
                    });
            self.set(selector);
            selector.start();
            String node = elected.take();
            release = () -> {
                over.countDown();
                selector.close();
            };
            return node;
        }

        /** Takes a session of its own: it knows its node by the session's number. */
        String apache(String path) throws Exception {
            ZooKeeper session = new ZooKeeper(hosts, timeout, event -> { });
            CountDownLatch acquired = new CountDownLatch(1);
            WriteLock lock = new WriteLock(session, path, ZooDefs.Ids.OPEN_ACL_UNSAFE, new LockListener() {
                @Override
                public void lockAcquired() {
                    acquired.countDown();
                }

                @Override
                public void lockReleased() { }
            });
            // The WriteLock forgets to look again when its predecessor goes before it has set its
            // watch.
            do {
                lock.lock();
            } while (!acquired.await(1, TimeUnit.SECONDS));
            release = () -> {
                lock.unlock();
                session.close();
            };
            return lock.getId();
        }

        /** What a user sees who asks Curator for the participants and reads each. */
        String contenders(String path) throws Exception {
            Collection<String> nodes = new InterProcessMutex(client, path).getParticipantNodes();
            List<String> texts = new ArrayList<>();
            for (String node : nodes) {
                texts.add(new String(client.getData().forPath(node), "UTF-8"));
            }
            return String.join("\t", texts);
        }
    }
}
