package org.apache.bookkeeper.test;

import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.util.PortManager;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/** The metadata service as a process; all tests of a run share it, and each finds it as a new cluster has it. */
final class MetadataProcess implements ZooKeeperCluster {
    private static ServerProcess shared;
    private static int port;
    private final String root;
    private ZooKeeper client;

    /** {@code root}: where the ledgers are. */
    MetadataProcess(String root) {
        this.root = root;
    }

    @Override
    public ZooKeeper getZooKeeperClient() {
        return client;
    }

    @Override
    public String getZooKeeperConnectString() {
        return "127.0.0.1:" + port;
    }

    @Override
    public String getMetadataServiceUri() {
        return getMetadataServiceUri(root);
    }

    @Override
    public String getMetadataServiceUri(String path) {
        return getMetadataServiceUri(path, "hierarchical");
    }

    @Override
    public String getMetadataServiceUri(String path, String type) {
        return "zk+" + type + "://" + getZooKeeperConnectString() + path;
    }

    @Override
    public void startCluster() throws Exception {
        synchronized (MetadataProcess.class) {
            if (shared == null) {
                port = PortManager.nextFreePort();
                shared = ServerProcess.metadata(port);
                shared.start();
            }
        }
        connect();
        remove(root);
        for (int end = root.indexOf('/', 1); end > 0; end = root.indexOf('/', end + 1)) {
            client.create(root.substring(0, end), new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        }
        createBKEnsemble(root);
    }

    private void connect() throws Exception {
        client = org.apache.bookkeeper.zookeeper.ZooKeeperClient.newBuilder()
            .connectString(getZooKeeperConnectString()).sessionTimeoutMs(10_000).build();
    }

    /** Removes a path with all that is below it, while nodes of sessions that have not yet expired may go by themselves. */
    private void remove(String path) throws Exception {
        try {
            for (String child : client.getChildren(path, false)) {
                remove(path + "/" + child);
            }
            client.delete(path, -1);
        } catch (KeeperException.NoNodeException gone) {
            return;
        } catch (KeeperException.NotEmptyException changed) {
            remove(path);
        }
    }

    @Override
    public void restartCluster() throws Exception {
        shared.start();
        connect();
    }

    @Override
    public void stopCluster() throws Exception {
        client.close();
        shared.stop();
    }

    /** Leaves the metadata service to the next test. */
    void leave() throws Exception {
        client.close();
    }

    @Override
    public void killCluster() throws Exception {
        client.close();
        shared.kill();
        shared = null;
    }

    @Override
    public void sleepCluster(int time, TimeUnit unit, CountDownLatch asleep) throws InterruptedException, IOException {
        shared.signal("STOP");
        asleep.countDown();
        Thread sleeper = new Thread(() -> {
            try {
                unit.sleep(time);
                shared.signal("CONT");
            } catch (Exception thrown) {
                throw new IllegalStateException(thrown);
            }
        });
        sleeper.setDaemon(true);
        sleeper.start();
    }
}
