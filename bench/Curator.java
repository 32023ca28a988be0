import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Does the work with Curator's InterProcessMutex. It answers each line "THREADS LOCKS SECONDS" of standard input with the
 * number of cycles, how long they took, and the median and the longest of them, in seconds. Threads that share a lock share its
 * object, as Curator intends.
 */
public class Curator {
    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 30_000, 10_000, new ExponentialBackoffRetry(100, 10));
        client.start();
        client.blockUntilConnected();
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            System.out.println(run(client, args[1], Integer.parseInt(words[0]), Integer.parseInt(words[1]), Double.parseDouble(words[2])));
        }
        client.close();
    }

    static String run(CuratorFramework client, String root, int threads, int locks, double seconds) throws Exception {
        List<InterProcessMutex> mutexes = new ArrayList<>();
        for (int i = 0; i < locks; i++) {
            mutexes.add(new InterProcessMutex(client, root + "/" + i));
        }
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        long began = System.nanoTime();
        long until = began + (long) (seconds * 1e9);
        List<Future<List<Long>>> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            InterProcessMutex mutex = mutexes.get(i % locks);
            all.add(pool.submit(() -> {
                List<Long> times = new ArrayList<>();
                for (long now = System.nanoTime(); times.isEmpty() || now < until; ) {
                    mutex.acquire();
                    mutex.release();
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
