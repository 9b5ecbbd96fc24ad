package org.apache.bookkeeper.test;

import java.io.File;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BookKeeperTestClient;
import org.apache.bookkeeper.common.allocator.PoolingPolicy;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.conf.TestBKConfiguration;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.util.PortManager;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;
import org.apache.pulsar.metadata.impl.FaultInjectionMetadataStore;
import org.awaitility.Awaitility;
import org.testng.annotations.AfterMethod;
import org.testng.annotations.BeforeMethod;

/**
 * Stands in for the class of the same name on which Pulsar's tests of its managed ledgers rest: it offers what they call, but its
 * bookies and its metadata service are processes of their own.
 */
public abstract class BookKeeperClusterTestCase {
    protected String testName;
    protected final ZooKeeperCluster zkUtil;
    protected FaultInjectionMetadataStore metadataStore;
    protected BookKeeperTestClient bkc;
    protected final ClientConfiguration baseClientConf = TestBKConfiguration.newClientConfiguration();
    protected ExecutorService executor;
    private final int numBookies;
    private final TmpDirs folders = new TmpDirs();
    private final List<ServerConfiguration> confs = new ArrayList<>();
    private final List<ServerProcess> bookies = new ArrayList<>();

    public BookKeeperClusterTestCase(int numBookies) {
        this.numBookies = numBookies;
        zkUtil = new MetadataProcess(changeLedgerPath() + "/ledgers");
    }

    protected String changeLedgerPath() {
        return "";
    }

    @BeforeMethod(alwaysRun = true)
    public void setUp(Method method) throws Exception {
        testName = method.getName();
        executor = Executors.newCachedThreadPool();
        zkUtil.startCluster();
        metadataStore = new FaultInjectionMetadataStore(
            MetadataStoreExtended.create("zk:" + zkUtil.getZooKeeperConnectString(), MetadataStoreConfig.builder().build()));
        baseClientConf.setMetadataServiceUri(zkUtil.getMetadataServiceUri());
        baseClientConf.setAllocatorPoolingPolicy(PoolingPolicy.UnpooledHeap);
        bkc = new BookKeeperTestClient(baseClientConf, new TestStatsProvider());
        for (int i = 0; i < numBookies; i++) {
            startNewBookie();
        }
    }

    @AfterMethod(alwaysRun = true)
    public void tearDown() throws Exception {
        bkc.close();
        bookies.forEach(ServerProcess::kill);
        bookies.clear();
        confs.clear();
        metadataStore.close();
        zkUtil.killCluster(); // each test has the paths of the one before
        folders.cleanup();
        executor.shutdownNow();
    }

    public int startNewBookie() throws Exception {
        ServerConfiguration conf = TestBKConfiguration.newServerConfiguration();
        File folder = folders.createNew("bookie", "test");
        conf.setMetadataServiceUri(zkUtil.getMetadataServiceUri());
        conf.setBookiePort(PortManager.nextFreePort());
        conf.setLedgerDirNames(new String[] {folder.getPath()});
        ServerProcess bookie = ServerProcess.bookie(conf);
        bookie.start();
        bkc.waitForWritableBookie(BookieId.parse("127.0.0.1:" + conf.getBookiePort())).get(30, TimeUnit.SECONDS);
        bookies.add(bookie);
        confs.add(conf);
        return conf.getBookiePort();
    }

    /** As metadata may be written at the same time, a close is tried until it goes through. */
    public static void closeManagedLedgerWithRetry(ManagedLedger ledger) {
        Awaitility.await().ignoreExceptions().until(() -> {
            ledger.close();
            return true;
        });
    }

    public ServerConfiguration killBookie(int index) throws Exception {
        bookies.remove(index).stop();
        return confs.remove(index);
    }
}
