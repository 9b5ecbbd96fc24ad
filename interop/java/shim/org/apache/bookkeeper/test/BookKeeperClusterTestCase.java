package org.apache.bookkeeper.test;

import static org.junit.Assert.assertTrue;
import static org.mockito.Mockito.doAnswer;
import static org.mockito.Mockito.doReturn;
import static org.mockito.Mockito.mock;

import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.client.BookKeeperTestClient;
import org.apache.bookkeeper.common.allocator.PoolingPolicy;
import org.apache.bookkeeper.conf.AbstractConfiguration;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.conf.TestBKConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.replication.Auditor;
import org.apache.bookkeeper.replication.ReplicationWorker;
import org.apache.bookkeeper.util.PortManager;
import org.apache.zookeeper.ZooKeeper;
import org.junit.After;
import org.junit.AssumptionViolatedException;
import org.junit.Before;
import org.junit.Rule;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.rules.TestName;
import org.junit.rules.Timeout;

/**
 * Stands in for the class of the same name on which BookKeeper's tests of its client rest: it offers what they call, but its bookies
 * and its metadata service are processes of their own.
 *
 * <p>What can only be had from a bookie in the same virtual machine (its statistics, its storage, a bookie made to misbehave) is
 * refused as an assumption that does not hold, so that a test that asks for it counts as skipped.
 */
public abstract class BookKeeperClusterTestCase {
    @Rule
    public final TestName runtime = new TestName();

    @Rule
    public final Timeout globalTimeout;

    private final MetadataProcess metadata = new MetadataProcess("/ledgers");
    protected final ZooKeeperCluster zkUtil = metadata;
    protected ZooKeeper zkc;
    protected String metadataServiceUri;
    protected final TmpDirs tmpDirs = new TmpDirs();
    protected final List<ServerTester> servers = new LinkedList<>();
    protected int numBookies;
    protected BookKeeperTestClient bkc;
    protected boolean useUUIDasBookieId = false;
    protected final ServerConfiguration baseConf = TestBKConfiguration.newServerConfiguration();
    protected final ClientConfiguration baseClientConf = TestBKConfiguration.newClientConfiguration();

    SynchronousQueue<Throwable> asyncExceptions = new SynchronousQueue<>();

    public BookKeeperClusterTestCase(int numBookies) {
        this(numBookies, 120);
    }

    public BookKeeperClusterTestCase(int numBookies, int testTimeoutSecs) {
        this(numBookies, 1, testTimeoutSecs);
    }

    public BookKeeperClusterTestCase(int numBookies, int numOfZKNodes, int testTimeoutSecs) {
        this.numBookies = numBookies;
        this.globalTimeout = Timeout.seconds(testTimeoutSecs);
    }

    static AssumptionViolatedException inside(String what) {
        return new AssumptionViolatedException("reaches into the Java bookie: " + what);
    }

    protected void captureThrowable(Runnable work) {
        try {
            work.run();
        } catch (Throwable thrown) {
            asyncExceptions.add(thrown);
        }
    }

    @Before
    @BeforeEach // some tests of 4.18 are JUnit 5's
    public void setUp() throws Exception {
        setUp("/ledgers");
    }

    protected void setUp(String ledgersRootPath) throws Exception {
        startZKCluster();
        metadataServiceUri = getMetadataServiceUri(ledgersRootPath);
        startBKCluster(metadataServiceUri);
    }

    protected String getMetadataServiceUri(String ledgersRootPath) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath);
    }

    @After
    @AfterEach
    public void tearDown() throws Exception {
        try {
            stopBKCluster();
        } finally {
            metadata.leave();
            tmpDirs.cleanup();
        }
    }

    @After
    public void clearMetricsThreadRegistry() throws Exception {
    }

    protected void startZKCluster() throws Exception {
        zkUtil.startCluster();
        zkc = zkUtil.getZooKeeperClient();
    }

    protected void stopZKCluster() throws Exception {
        zkUtil.killCluster();
    }

    protected void startBKCluster(String uri) throws Exception {
        baseConf.setMetadataServiceUri(uri);
        baseClientConf.setMetadataServiceUri(uri);
        baseClientConf.setAllocatorPoolingPolicy(PoolingPolicy.UnpooledHeap);
        if (numBookies > 0) {
            bkc = new BookKeeperTestClient(baseClientConf, new TestStatsProvider());
        }
        for (int i = 0; i < numBookies; i++) {
            servers.add(new ServerTester(newServerConfiguration()));
        }
        for (ServerTester bookie : servers) {
            bookie.process.launch();
        }
        for (ServerTester bookie : servers) {
            await(bookie);
        }
    }

    protected void stopBKCluster() throws Exception {
        if (bkc != null) {
            bkc.close();
        }
        for (ServerTester bookie : servers) {
            bookie.process.kill();
        }
        servers.clear();
    }

    protected ServerConfiguration newServerConfiguration() throws Exception {
        File folder = tmpDirs.createNew("bookie", "test");
        return newServerConfiguration(PortManager.nextFreePort(), folder, new File[] {folder});
    }

    protected ClientConfiguration newClientConfiguration() {
        return new ClientConfiguration(baseClientConf);
    }

    protected ServerConfiguration newServerConfiguration(int port, File journalDir, File[] ledgerDirs) {
        ServerConfiguration conf = new ServerConfiguration(baseConf);
        conf.setBookiePort(port);
        conf.setJournalDirName(journalDir.getPath());
        conf.setLedgerDirNames(Arrays.stream(ledgerDirs).map(File::getPath).toArray(String[]::new));
        return conf;
    }

    protected void stopAllBookies() throws Exception {
        stopAllBookies(true);
    }

    protected void stopAllBookies(boolean shutdownClient) throws Exception {
        for (ServerTester bookie : servers) {
            bookie.shutdown();
        }
        servers.clear();
        if (shutdownClient && bkc != null) {
            bkc.close();
            bkc = null;
        }
    }

    protected String newMetadataServiceUri(String ledgersRootPath) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath);
    }

    protected String newMetadataServiceUri(String ledgersRootPath, String type) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath, type);
    }

    public BookieId getBookie(int index) throws Exception {
        return servers.get(index).id();
    }

    protected List<BookieId> bookieAddresses() throws Exception {
        return servers.stream().map(ServerTester::id).collect(Collectors.toList());
    }

    protected List<File> bookieLedgerDirs() throws Exception {
        throw inside("bookieLedgerDirs");
    }

    protected List<File> bookieJournalDirs() throws Exception {
        throw inside("bookieJournalDirs");
    }

    protected BookieId addressByIndex(int index) throws Exception {
        return getBookie(index);
    }

    protected BookieServer serverByIndex(int index) throws Exception {
        return servers.get(index).getServer();
    }

    protected ServerConfiguration confByIndex(int index) throws Exception {
        return servers.get(index).getConfiguration();
    }

    protected int indexOfServer(BookieServer server) throws Exception {
        for (int i = 0; i < servers.size(); i++) {
            if (servers.get(i).getServer() == server) {
                return i;
            }
        }
        return -1;
    }

    protected int lastBookieIndex() {
        return servers.size() - 1;
    }

    protected int bookieCount() {
        return servers.size();
    }

    private ServerTester byAddress(BookieId id) throws IOException {
        return servers.stream().filter(bookie -> bookie.id().equals(id)).findFirst()
            .orElseThrow(() -> new IOException("Bookie not found"));
    }

    public ServerConfiguration getBkConf(BookieId id) throws Exception {
        return byAddress(id).getConfiguration();
    }

    public ServerConfiguration killBookie(BookieId id) throws Exception {
        for (int i = 0; i < servers.size(); i++) {
            if (getBookie(i).equals(id)) {
                return killBookie(i);
            }
        }
        return null;
    }

    public ServerConfiguration killBookie(int index) throws Exception {
        ServerTester bookie = servers.remove(index);
        bookie.shutdown();
        return bookie.getConfiguration();
    }

    public ServerConfiguration killBookieAndWaitForZK(int index) throws Exception {
        String path = "/ledgers/available/" + getBookie(index);
        ServerConfiguration conf = killBookie(index);
        while (zkc.exists(path, false) != null) {
            Thread.sleep(100);
        }
        return conf;
    }

    public void setBookieToReadOnly(BookieId id) throws Exception {
        throw inside("setBookieToReadOnly");
    }

    public CountDownLatch sleepBookie(BookieId id, int seconds) throws Exception {
        ServerTester bookie = byAddress(id);
        CountDownLatch asleep = new CountDownLatch(1);
        freeze(bookie, asleep, () -> {
            TimeUnit.SECONDS.sleep(seconds);
            return null;
        });
        return asleep;
    }

    public void sleepBookie(BookieId id, CountDownLatch awake) throws InterruptedException, IOException {
        CountDownLatch asleep = new CountDownLatch(1);
        sleepBookie(id, awake, asleep);
        asleep.await();
    }

    public void sleepBookie(BookieId id, CountDownLatch awake, CountDownLatch asleep) throws InterruptedException, IOException {
        freeze(byAddress(id), asleep, () -> {
            awake.await();
            return null;
        });
    }

    private static void freeze(ServerTester bookie, CountDownLatch asleep, Callable<Void> meanwhile) {
        Thread sleeper = new Thread(() -> {
            try {
                bookie.process.signal("STOP");
                if (asleep != null) {
                    asleep.countDown();
                }
                meanwhile.call();
                bookie.process.signal("CONT");
            } catch (Exception thrown) {
                throw new IllegalStateException(thrown);
            }
        });
        sleeper.setDaemon(true);
        sleeper.start();
    }

    public void restartBookies() throws Exception {
        restartBookies(conf -> conf);
    }

    public void restartBookie(BookieId id) throws Exception {
        startAndAddBookie(killBookie(id));
    }

    public void restartBookies(Function<ServerConfiguration, ServerConfiguration> changed) throws Exception {
        List<ServerConfiguration> confs = new ArrayList<>();
        for (ServerTester bookie : servers) {
            confs.add(bookie.getConfiguration());
        }
        stopAllBookies(false);
        for (ServerConfiguration conf : confs) {
            startAndAddBookie(changed.apply(conf));
        }
    }

    public int startNewBookie() throws Exception {
        return startNewBookieAndReturnAddress().getPort();
    }

    public BookieSocketAddress startNewBookieAndReturnAddress() throws Exception {
        return startAndAddBookie(newServerConfiguration()).getAddress();
    }

    public BookieId startNewBookieAndReturnBookieId() throws Exception {
        return startAndAddBookie(newServerConfiguration()).id();
    }

    protected ServerTester startAndAddBookie(ServerConfiguration conf) throws Exception {
        ServerTester bookie = startBookie(conf);
        servers.add(bookie);
        return bookie;
    }

    protected ServerTester startAndAddBookie(ServerConfiguration conf, Bookie bookie) throws Exception {
        throw inside("a bookie of the test's own");
    }

    protected ServerTester startBookie(ServerConfiguration conf) throws Exception {
        if (bkc == null) {
            bkc = new BookKeeperTestClient(baseClientConf, new TestStatsProvider());
        }
        ServerTester bookie = new ServerTester(conf);
        bookie.process.launch();
        await(bookie);
        return bookie;
    }

    /** Returns once the bookie serves and the client knows of it. */
    private void await(ServerTester bookie) throws Exception {
        bookie.process.await();
        if (bookie.getConfiguration().isForceReadOnlyBookie()) {
            bkc.waitForReadOnlyBookie(bookie.id()).get(30, TimeUnit.SECONDS);
        } else {
            bkc.waitForWritableBookie(bookie.id()).get(30, TimeUnit.SECONDS);
        }
    }

    protected ServerTester startBookie(ServerConfiguration conf, Bookie bookie) throws Exception {
        throw inside("a bookie of the test's own");
    }

    public void setMetastoreImplClass(AbstractConfiguration conf) {
    }

    public void setAutoRecoveryEnabled(boolean enabled) {
        if (enabled) {
            throw inside("auto-recovery");
        }
    }

    public boolean isAutoRecoveryEnabled() {
        return false;
    }

    public void startReplicationService() throws Exception {
        throw inside("auto-recovery");
    }

    public void stopReplicationService() throws Exception {
    }

    public Auditor getAuditor(int timeout, TimeUnit unit) throws Exception {
        throw inside("auto-recovery");
    }

    public boolean isCreatedFromIp(BookieId id) {
        return bkc.getBookieAddressResolver().resolve(id).getSocketAddress().toString().startsWith("/");
    }

    public void resetBookieOpLoggers() {
    }

    public TestStatsProvider getStatsProvider(BookieId id) {
        throw inside("its statistics");
    }

    public TestStatsProvider getStatsProvider(int index) throws Exception {
        throw inside("its statistics");
    }

    /** A bookie as a process; what tests call of {@link BookieServer} is answered by a mock. */
    public class ServerTester {
        private final ServerConfiguration conf;
        private final BookieServer server;
        private final BookieSocketAddress address;
        private final ServerProcess process;

        public ServerTester(ServerConfiguration conf) throws Exception {
            this.conf = conf;
            address = new BookieSocketAddress("127.0.0.1", conf.getBookiePort());
            process = ServerProcess.bookie(conf);
            server = mock(BookieServer.class, call -> {
                throw inside(call.getMethod().getName());
            });
            doReturn(id()).when(server).getBookieId();
            doReturn(address).when(server).getLocalAddress();
            doAnswer(call -> process.isAlive()).when(server).isRunning();
            doAnswer(call -> process.isAlive()).when(server).isBookieRunning();
            doAnswer(call -> process.start()).when(server).start();
            doAnswer(call -> process.stop()).when(server).shutdown();
            doAnswer(call -> process.signal("STOP")).when(server).suspendProcessing();
            doAnswer(call -> process.signal("CONT")).when(server).resumeProcessing();
            doReturn("bookie " + id()).when(server).toString();
        }

        public ServerTester(ServerConfiguration conf, Bookie bookie) throws Exception {
            throw inside("a bookie of the test's own");
        }

        BookieId id() {
            return address.toBookieId();
        }

        public void startAutoRecovery() throws Exception {
            throw inside("auto-recovery");
        }

        public void stopAutoRecovery() {
        }

        public Auditor getAuditor() {
            throw inside("auto-recovery");
        }

        public ReplicationWorker getReplicationWorker() {
            throw inside("auto-recovery");
        }

        public ServerConfiguration getConfiguration() {
            return conf;
        }

        public BookieServer getServer() {
            return server;
        }

        public TestStatsProvider getStatsProvider() {
            throw inside("its statistics");
        }

        public BookieSocketAddress getAddress() {
            return address;
        }

        public void shutdown() throws Exception {
            process.stop();
            assertTrue("the bookie has ended", !process.isAlive());
        }
    }
}
