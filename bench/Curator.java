import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Does the work with Curator's InterProcessMutex. It answers each line "THREADS LOCKS SECONDS" of standard input with the cycles
 * a second. Threads that share a lock share its object, as Curator intends.
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

    static double run(CuratorFramework client, String root, int threads, int locks, double seconds) throws Exception {
        List<InterProcessMutex> mutexes = new ArrayList<>();
        for (int i = 0; i < locks; i++) {
            mutexes.add(new InterProcessMutex(client, root + "/" + i));
        }
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        long began = System.nanoTime();
        long until = began + (long) (seconds * 1e9);
        List<Future<Long>> counts = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            InterProcessMutex mutex = mutexes.get(i % locks);
            counts.add(pool.submit(() -> {
                long cycles = 0;
                while (System.nanoTime() < until) {
                    mutex.acquire();
                    mutex.release();
                    cycles++;
                }
                return cycles;
            }));
        }
        long sum = 0;
        for (Future<Long> count : counts) {
            sum += count.get();
        }
        long took = System.nanoTime() - began;
        pool.shutdown();
        return sum / (took / 1e9);
    }
}
