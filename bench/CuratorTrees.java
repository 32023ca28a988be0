import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.zookeeper.CreateMode;

/**
 * Keeps a copy of a tree with Curator's CuratorCache. It answers lines of standard input as serveCopies in copies.go does, for one
 * client. "stand N 0" keeps N znodes in place with PersistentNode, and waits until all are there. "register N 0" registers N
 * instances of a service with x-discovery. "consume N 0" follows three services of a thousand in each of N clients.
 */
public class CuratorTrees {
    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 30_000, 10_000, new ExponentialBackoffRetry(100, 10));
        client.start();
        client.blockUntilConnected();
        CuratorCache cache = CuratorCache.build(client, args[1]);
        CountDownLatch whole = new CountDownLatch(1);
        cache.listenable().addListener(CuratorCacheListener.builder().forInitialized(whole::countDown).build());
        List<PersistentNode> nodes = new ArrayList<>();
        ServiceDiscovery<String> services = ServiceDiscoveryBuilder.builder(String.class).client(client)
                .basePath(args[1].substring(0, args[1].lastIndexOf('/'))).build();
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            int number = Integer.parseInt(words[1]);
            long before = words[0].equals("sync") ? memory() : 0;
            long began = System.nanoTime();
            if (words[0].equals("sync")) {
                cache.start();
                whole.await();
            }
            for (int i = 0; words[0].equals("stand") && i < number; i++) {
                nodes.add(new PersistentNode(client, CreateMode.EPHEMERAL, false, args[1] + "/" + i, new byte[100]));
                nodes.get(i).start();
            }
            for (PersistentNode node : nodes) {
                node.waitForInitialCreate(1, TimeUnit.MINUTES);
            }
            if (words[0].equals("register")) {
                services.start();
            }
            for (int i = 0; words[0].equals("register") && i < number; i++) {
                services.registerService(ServiceInstance.<String>builder().name(args[1].substring(args[1].lastIndexOf('/') + 1)).id("" + i)
                        .address("10.0.0.7").port(8080).build());
            }
            for (int i = 0; words[0].equals("consume") && i < number; i++) {
                CuratorFramework consumer = CuratorFrameworkFactory.newClient(args[0], 30_000, 10_000, new ExponentialBackoffRetry(100, 10));
                consumer.start();
                ServiceDiscovery<String> found = ServiceDiscoveryBuilder.builder(String.class).client(consumer).basePath(args[1]).build();
                for (int k = 0; k < 3; k++) {
                    found.serviceCacheBuilder().name("service-" + (3 * i + k) % 1000).build().start();
                }
            }
            while (!words[0].equals("consume") && !words[0].equals("register") && nodes.isEmpty() && cache.size() < number) {
                Thread.sleep(1);
            }
            long took = System.nanoTime() - began;
            System.out.println(took / 1e9 + " " + (words[0].equals("sync") ? memory() - before : 0));
        }
        client.close();
    }

    static long memory() {
        for (int i = 0; i < 3; i++) {
            System.gc();
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }
}
