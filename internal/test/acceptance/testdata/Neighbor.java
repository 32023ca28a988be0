import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.ServiceType;
import org.apache.curator.x.discovery.UriSpec;
import org.apache.curator.x.discovery.details.JsonInstanceSerializer;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;

/**
 * A process that contends for locks on request, with the recipes of Apache Curator. A line on standard input is a command to
 * one of its members, by number: "3 open mutex /path id", "3 acquire", "3 release", "3 participants", "3 show". A line on standard output
 * answers one command. Each member has its own client and thread. The process ends with its input.
 */
public class Neighbor {
    interface Recipe {
        void acquire() throws Exception;

        void release() throws Exception;

        Collection<String> participants() throws Exception;
    }

    /** What an instance of a service says about itself. */
    public static class Payload {
        public String text = "<é> & \"x\"";
        public int number = 7;
    }

    /** What does one thing after the other. */
    static class Member {
        private final ExecutorService thread = Executors.newSingleThreadExecutor();
        private CuratorFramework client;
        private Recipe recipe;
        private final AtomicInteger losses = new AtomicInteger();

        void tell(String number, String servers, int session, String[] command) {
            thread.execute(() -> {
                String answer;
                try {
                    answer = execute(servers, session, command);
                } catch (Exception e) {
                    e.printStackTrace();
                    answer = "failed " + e;
                }
                say(number + " " + answer.replace('\n', ' '));
            });
        }

        private String execute(String servers, int session, String[] command) throws Exception {
            switch (command[0]) {
                case "open":
                    if (client == null) { // or else another recipe of the same session
                        client = connect(servers, session);
                        // A recipe that hears late of the connection registers twice.
                        CountDownLatch told = new CountDownLatch(1);
                        client.getConnectionStateListenable().addListener((c, state) -> {
                            if (state == ConnectionState.LOST) {
                                losses.incrementAndGet();
                            }
                            told.countDown();
                        });
                        client.start();
                        told.await();
                    }
                    recipe = make(client, command[1], command[2], command[3]);
                    return "opened";
                case "acquire":
                    recipe.acquire();
                    return "acquired";
                case "release":
                    recipe.release();
                    return "released";
                case "participants":
                    return "participants " + recipe.participants().size();
                case "show":
                    return "shown " + String.join("\t", recipe.participants());
                case "losses":
                    return "losses " + losses.get();
                default:
                    return "failed what is " + command[0] + "?";
            }
        }
    }

    public static void main(String[] args) throws Exception {
        String servers = args[0];
        int session = Integer.parseInt(args[1]);
        Map<String, Member> members = new HashMap<>();
        say("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            members.computeIfAbsent(words[0], number -> new Member())
                    .tell(words[0], servers, session, Arrays.copyOfRange(words, 1, words.length));
        }
        Runtime.getRuntime().halt(0); // whatever its threads wait for
    }

    private static final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    static synchronized void say(String line) {
        out.println(line);
    }

    /**
     * With a user in the environment, the client authenticates as that user, and all znodes are for that user alone. Without a
     * password it uses the JAAS file that Java was given.
     */
    static CuratorFramework connect(String servers, int session) {
        CuratorFrameworkFactory.Builder builder = CuratorFrameworkFactory.builder().connectString(servers).sessionTimeoutMs(session)
                .connectionTimeoutMs(10_000).retryPolicy(new ExponentialBackoffRetry(100, 10));
        String user = System.getenv("ZKR_NEIGHBOR_USER");
        if (user == null) {
            return builder.build();
        }
        if (System.getenv("ZKR_NEIGHBOR_PASSWORD") != null) {
            useDigest(user, System.getenv("ZKR_NEIGHBOR_PASSWORD"));
        }
        List<ACL> acl = Collections.singletonList(new ACL(ZooDefs.Perms.ALL, new Id("sasl", user)));
        return builder.aclProvider(new ACLProvider() {
            @Override
            public List<ACL> getDefaultAcl() {
                return acl;
            }

            @Override
            public List<ACL> getAclForPath(String path) {
                return acl;
            }
        }).build();
    }

    static void useDigest(String user, String password) {
        Map<String, String> credentials = new HashMap<>();
        credentials.put("username", user);
        credentials.put("password", password);
        Configuration.setConfiguration(new Configuration() {
            @Override
            public AppConfigurationEntry[] getAppConfigurationEntry(String section) {
                return new AppConfigurationEntry[] {new AppConfigurationEntry("org.apache.zookeeper.server.auth.DigestLoginModule",
                        AppConfigurationEntry.LoginModuleControlFlag.REQUIRED, credentials)};
            }
        });
    }

    static Recipe make(CuratorFramework client, String kind, String path, String id) throws Exception {
        if (kind.startsWith("service:")) {
            return service(client, path, id, ServiceType.valueOf(kind.substring("service:".length())));
        }
        switch (kind) {
            case "mutex":
                return lock(new InterProcessMutex(client, path));
            case "read":
                return lock(new InterProcessReadWriteLock(client, path).readLock());
            case "write":
                return lock(new InterProcessReadWriteLock(client, path).writeLock());
            case "latch":
                return latch(client, path, id);
            case "selector":
                return selector(client, path, id);
            case "group-member":
                return member(new GroupMember(client, path, id));
            case "persistent-node":
                return node(new PersistentNode(client, CreateMode.EPHEMERAL, false, path + "/" + id, id.getBytes(StandardCharsets.UTF_8)));
            case "protected-node":
                return node(new PersistentNode(client, CreateMode.EPHEMERAL, true, path + "/" + id, id.getBytes(StandardCharsets.UTF_8)));
            case "atomic-long":
                return atomicLong(new DistributedAtomicLong(client, path, new RetryNTimes(100, 10)));
            case "shared-count":
                return sharedCount(client, path);
            case "barrier":
                return barrier(new DistributedBarrier(client, path));
            case "double:2":
            case "double:3":
                return doubleBarrier(client, path, kind.charAt(7) - '0', 0);
            case "impatient-double:2":
                return doubleBarrier(client, path, 2, 1);
            default:
                int limit = Integer.parseInt(kind.substring("semaphore:".length()));
                return semaphore(new InterProcessSemaphoreV2(client, path, limit));
        }
    }

    /** Acquiring adds 1, releasing takes 1 off, and there are as many participants as its value. */
    static Recipe atomicLong(DistributedAtomicLong counter) {
        return new Recipe() {
            private void succeeded(AtomicValue<Long> result) {
                if (!result.succeeded()) {
                    throw new IllegalStateException("not added");
                }
            }

            public void acquire() throws Exception {
                succeeded(counter.increment());
            }

            public void release() throws Exception {
                succeeded(counter.decrement());
            }

            public Collection<String> participants() throws Exception {
                return Collections.nCopies(counter.get().postValue().intValue(), "");
            }
        };
    }

    /** The same of a SharedCount. */
    static Recipe sharedCount(CuratorFramework client, String path) throws Exception {
        SharedCount counter = new SharedCount(client, path, 0);
        counter.start();
        return new Recipe() {
            private void add(int delta) throws Exception {
                for (VersionedValue<Integer> old = counter.getVersionedValue(); !counter.trySetCount(old, old.getValue() + delta);) {
                    old = counter.getVersionedValue();
                }
            }

            public void acquire() throws Exception {
                add(1);
            }

            public void release() throws Exception {
                add(-1);
            }

            public Collection<String> participants() throws Exception {
                byte[] data = client.getData().forPath(path);
                return Collections.nCopies(ByteBuffer.wrap(data).getInt(), "");
            }
        };
    }

    /** Acquiring sets the barrier, releasing removes it, and who looks for participants waits for that. */
    static Recipe barrier(DistributedBarrier barrier) {
        return new Recipe() {
            public void acquire() throws Exception {
                barrier.setBarrier();
            }

            public void release() throws Exception {
                barrier.removeBarrier();
            }

            public Collection<String> participants() throws Exception {
                barrier.waitOnBarrier();
                return List.of();
            }
        };
    }

    /** Each round has another barrier: one that was notified stays so. */
    static Recipe doubleBarrier(CuratorFramework client, String path, int n, int seconds) {
        return new Recipe() {
            private DistributedDoubleBarrier barrier;

            public void acquire() throws Exception {
                barrier = new DistributedDoubleBarrier(client, path, n);
                if (seconds == 0) {
                    barrier.enter();
                } else if (!barrier.enter(seconds, TimeUnit.SECONDS)) {
                    throw new IllegalStateException("timed out");
                }
            }

            public void release() throws Exception {
                barrier.leave();
            }

            public Collection<String> participants() throws Exception {
                return client.getChildren().forPath(path);
            }
        };
    }

    static Recipe member(GroupMember member) {
        return new Recipe() {
            public void acquire() {
                member.start();
            }

            public void release() {
                member.close();
            }

            public Collection<String> participants() {
                return member.getCurrentMembers().keySet();
            }
        };
    }

    static Recipe node(PersistentNode node) {
        return new Recipe() {
            public void acquire() throws Exception {
                node.start();
                if (!node.waitForInitialCreate(30, TimeUnit.SECONDS)) {
                    throw new IllegalStateException("not created");
                }
            }

            public void release() throws Exception {
                node.close();
            }

            public Collection<String> participants() {
                return List.of(node.getActualPath());
            }
        };
    }

    /** An instance of the service "billing". The participants are all its instances, as they are read and written again. */
    static Recipe service(CuratorFramework client, String path, String id, ServiceType type) throws Exception {
        ServiceDiscovery<Payload> discovery = ServiceDiscoveryBuilder.builder(Payload.class).client(client).basePath(path).build();
        discovery.start();
        ServiceInstance<Payload> instance = ServiceInstance.<Payload>builder().name("billing").id(id).address("10.0.0.9").port(8080)
                .sslPort(8443).payload(new Payload()).serviceType(type).uriSpec(new UriSpec("{scheme}://{address}:{port}/{[}x{]}")).build();
        return new Recipe() {
            public void acquire() throws Exception {
                discovery.registerService(instance);
            }

            public void release() throws Exception {
                discovery.unregisterService(instance);
            }

            public Collection<String> participants() throws Exception {
                List<String> all = new ArrayList<>();
                for (ServiceInstance<Payload> i : discovery.queryForInstances("billing")) {
                    all.add(new String(new JsonInstanceSerializer<>(Payload.class, false).serialize(i), StandardCharsets.UTF_8));
                }
                all.sort(null);
                return all;
            }
        };
    }

    static Recipe lock(InterProcessMutex mutex) {
        return new Recipe() {
            public void acquire() throws Exception {
                mutex.acquire();
            }

            public void release() throws Exception {
                mutex.release();
            }

            public Collection<String> participants() throws Exception {
                return mutex.getParticipantNodes();
            }
        };
    }

    static Recipe semaphore(InterProcessSemaphoreV2 semaphore) {
        return new Recipe() {
            private final List<Lease> leases = new ArrayList<>();

            public void acquire() throws Exception {
                leases.add(semaphore.acquire());
            }

            public void release() {
                semaphore.returnLease(leases.remove(leases.size() - 1));
            }

            public Collection<String> participants() throws Exception {
                return semaphore.getParticipantNodes();
            }
        };
    }

    static Recipe latch(CuratorFramework client, String path, String id) {
        return new Recipe() {
            private LeaderLatch latch = new LeaderLatch(client, path, id);

            public void acquire() throws Exception {
                latch.start();
                latch.await();
            }

            public void release() throws Exception {
                latch.close();
                latch = new LeaderLatch(client, path, id);
            }

            public Collection<String> participants() throws Exception {
                return ids(latch.getParticipants());
            }
        };
    }

    static Recipe selector(CuratorFramework client, String path, String id) {
        return new Recipe() {
            private final Object turn = new Object();
            private boolean leads;
            private boolean done;
            private LeaderSelector selector;

            public void acquire() throws Exception {
                selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
                    public void takeLeadership(CuratorFramework c) throws Exception {
                        synchronized (turn) {
                            leads = true;
                            turn.notifyAll();
                            while (!done) {
                                turn.wait();
                            }
                            leads = false;
                            turn.notifyAll();
                        }
                    }
                });
                selector.setId(id);
                selector.start();
                synchronized (turn) {
                    while (!leads) {
                        turn.wait();
                    }
                }
            }

            public void release() throws Exception {
                synchronized (turn) {
                    done = true;
                    turn.notifyAll();
                    while (leads) {
                        turn.wait();
                    }
                    done = false;
                }
                selector.close();
            }

            public Collection<String> participants() throws Exception {
                return ids(selector.getParticipants());
            }
        };
    }

    static Collection<String> ids(Collection<Participant> participants) {
        List<String> ids = new ArrayList<>();
        for (Participant p : participants) {
            ids.add(p.getId());
        }
        return ids;
    }
}
