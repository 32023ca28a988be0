import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;

/**
 * Does the work with Curator's InterProcessMutex ("mutex"), its DistributedAtomicLong ("counter") or its
 * DistributedDoubleBarrier ("barrier"), or acquires a mutex and keeps it ("hold"). It answers each line "THREADS LOCKS SECONDS" of
 * standard input with the number of cycles, how long they took, and the median and the longest of them, in seconds. Threads that
 * share a lock or a counter share its object, as Curator intends.
 */
public class Curator {
    static String servers;
    static int timeout; // in milliseconds
    static final List<CuratorFramework> clients = new ArrayList<>();
    static int rounds;

    public static void main(String[] args) throws Exception {
        servers = args[0];
        timeout = Integer.parseInt(args[3]);
        connect(1);
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (args[2].equals("hold")) {
                new InterProcessMutex(clients.get(0), args[1]).acquire();
                System.out.println("1 0 0 0");
                continue;
            }
            String[] words = line.trim().split(" ");
            int threads = Integer.parseInt(words[0]);
            int locks = Integer.parseInt(words[1]);
            List<Callable<?>> cycles = new ArrayList<>();
            if (args[2].equals("barrier")) {
                connect(locks);
                cycles.add(meeting(args[1], threads, locks));
            }
            for (int i = 0; i < locks && !args[2].equals("barrier"); i++) {
                cycles.add(args[2].equals("counter") ? addition(args[1] + "/" + i) : turn(args[1] + "/" + i));
            }
            System.out.println(run(cycles, args[2].equals("barrier") ? 1 : threads, Double.parseDouble(words[2])));
        }
        for (CuratorFramework client : clients) {
            client.close();
        }
        System.exit(0); // threads of a barrier may be left
    }

    static void connect(int n) throws Exception {
        while (clients.size() < n) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(servers, timeout, 10_000, new ExponentialBackoffRetry(100, 10));
            client.start();
            client.blockUntilConnected();
            clients.add(client);
        }
    }

    static Callable<?> turn(String path) {
        InterProcessMutex mutex = new InterProcessMutex(clients.get(0), path);
        return () -> {
            mutex.acquire();
            mutex.release();
            return null;
        };
    }

    /** An addition is tried again until it succeeds. */
    static Callable<?> addition(String path) {
        DistributedAtomicLong counter = new DistributedAtomicLong(clients.get(0), path, new RetryNTimes(1_000_000, 1));
        return () -> {
            while (!counter.increment().succeeded()) {
            }
            return null;
        };
    }

    /** All members enter a barrier and leave it. A DistributedDoubleBarrier is for one round. */
    static Callable<?> meeting(String path, int members, int from) {
        ExecutorService pool = Executors.newCachedThreadPool();
        return () -> {
            rounds++;
            List<Callable<Void>> all = new ArrayList<>();
            for (int i = 0; i < members; i++) {
                DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(clients.get(i % from), path + "/" + rounds, members);
                all.add(() -> {
                    barrier.enter();
                    barrier.leave();
                    return null;
                });
            }
            for (Future<Void> one : pool.invokeAll(all)) {
                one.get();
            }
            return null;
        };
    }

    /** Thread i does cycle i modulo the number of cycles, again and again. */
    static String run(List<Callable<?>> cycles, int threads, double seconds) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        long began = System.nanoTime();
        long until = began + (long) (seconds * 1e9);
        List<Future<List<Long>>> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Callable<?> cycle = cycles.get(i % cycles.size());
            all.add(pool.submit(() -> {
                List<Long> times = new ArrayList<>();
                for (long now = System.nanoTime(); times.isEmpty() || now < until; ) {
                    cycle.call();
                    long next = System.nanoTime();
                    times.add(next - now);
                    now = next;
                }
                return times;
            }));
        }
        List<Long> times = new ArrayList<>();
        for (Future<List<Long>> one : all) {
            times.addAll(one.get());
        }
        long took = System.nanoTime() - began;
        pool.shutdown();
        Collections.sort(times);
        return times.size() + " " + took / 1e9 + " " + times.get(times.size() / 2) / 1e9 + " " + times.get(times.size() - 1) / 1e9;
    }
}
