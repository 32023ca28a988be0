import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A process that holds one of Apache Curator's recipes on request: a line on standard input is a command, "acquire", "release"
 * or "participants"; a line on standard output is the answer to it. It ends with its input.
 */
public class Neighbour {
    interface Recipe {
        void acquire() throws Exception;

        void release() throws Exception;

        Collection<String> participants() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        String servers = args[0], kind = args[1], path = args[2], id = args[3];
        int session = Integer.parseInt(args[4]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(servers, session, 10_000, new ExponentialBackoffRetry(100, 10));
        client.start();
        client.blockUntilConnected();
        Recipe recipe = make(client, kind, path, id);
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String command = in.readLine(); command != null; command = in.readLine()) {
            switch (command) {
                case "acquire":
                    recipe.acquire();
                    System.out.println("acquired");
                    break;
                case "release":
                    recipe.release();
                    System.out.println("released");
                    break;
                case "participants":
                    System.out.println("participants " + recipe.participants().size());
                    break;
                default:
                    System.out.println("what is " + command + "?");
            }
        }
        client.close();
    }

    static Recipe make(CuratorFramework client, String kind, String path, String id) {
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
            default:
                return semaphore(new InterProcessSemaphoreV2(client, path, Integer.parseInt(kind)));
        }
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
