package org.apache.bookkeeper.test;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.PrintWriter;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * A bookie or a metadata service as a process: Fencepost's, or the real one.
 *
 * <p>System properties say what to start: interop.python, the interpreter; interop.bookies and interop.metadata, "fencepost", "java" or
 * "zookeeper"; interop.folder, where data and logs go; interop.jvm, the words of a Java command line ahead of the class, one a line.
 */
final class ServerProcess {
    private static final Set<ProcessHandle> STARTED = ConcurrentHashMap.newKeySet();
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Settings that tests give the Java bookie and that ours has under the same names; others are about the insides of either. */
    private static final List<String> SETTINGS = List.of("gcWaitTime", "zkTimeout", "nettyMaxFrameSizeBytes", "forceReadOnlyBookie");

    private static Process launcher;

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> STARTED.forEach(ProcessHandle::destroyForcibly)));
    }

    private final List<String> command;
    private final boolean fencepost;
    private final int port;
    private final boolean bookie;
    private final File log;
    private ProcessHandle process;

    private ServerProcess(String name, int port, boolean bookie, boolean fencepost, List<String> command) {
        this.command = command;
        this.fencepost = fencepost;
        this.port = port;
        this.bookie = bookie;
        this.log = new File(System.getProperty("interop.folder"), name + "-" + port + ".log");
    }

    private static List<String> java(String... words) {
        List<String> command = new ArrayList<>(Arrays.asList(System.getProperty("interop.jvm").split("\n")));
        command.addAll(List.of(words));
        return command;
    }

    static ServerProcess metadata(int port) throws IOException {
        File folder = new File(System.getProperty("interop.folder"), "metadata-" + port);
        Files.createDirectories(folder.toPath());
        List<String> command;
        boolean fencepost = System.getProperty("interop.metadata").equals("fencepost");
        if (fencepost) {
            command = List.of("metadata", folder.getPath(), "--port", Integer.toString(port));
        } else {
            File settings = new File(folder, "zoo.cfg");
            Files.writeString(settings.toPath(), "tickTime=500\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\ndataDir="
                + folder + "/data\nclientPort=" + port + "\nmaxClientCnxns=200\n4lw.commands.whitelist=*\n");
            command = java("org.apache.zookeeper.server.quorum.QuorumPeerMain", settings.getPath());
        }
        return new ServerProcess("metadata", port, false, fencepost, command);
    }

    static ServerProcess bookie(ServerConfiguration conf) throws IOException {
        int port = conf.getBookiePort();
        File folder = conf.getLedgerDirs()[0];
        List<String> command;
        boolean fencepost = System.getProperty("interop.bookies").equals("fencepost");
        if (fencepost) {
            String uri = conf.getMetadataServiceUriUnchecked().replaceFirst("zk\\+[a-z]*:", "zk:");
            command = new ArrayList<>(
                List.of("bookie", new File(folder, "data").getPath(), "--metadata", uri, "--port", Integer.toString(port)));
            for (String name : SETTINGS) {
                if (conf.containsKey(name)) {
                    command.addAll(List.of("--set", name + "=" + conf.getString(name)));
                }
            }
        } else {
            File settings = new File(folder, "bk_server.conf");
            conf.setLedgerStorageClass(DbLedgerStorage.class.getName());
            // A process refuses the version that tests in the same virtual machine get away with.
            conf.setJournalFormatVersionToWrite(6);
            try (PrintWriter out = new PrintWriter(settings, StandardCharsets.UTF_8)) {
                conf.getKeys().forEachRemaining(key -> out.println(key + "=" + conf.getString(key)));
                out.println("advertisedAddress=127.0.0.1");
                out.println("httpServerEnabled=false");
            }
            command = java("org.apache.bookkeeper.server.Main", "--conf", settings.getPath());
        }
        return new ServerProcess("bookie", port, true, fencepost, command);
    }

    boolean isAlive() {
        return process != null && process.isAlive();
    }

    void launch() throws IOException {
        if (fencepost) {
            process = ProcessHandle.of(launched(command, log)).orElseThrow(() -> new IOException("ended at once, see " + log));
        } else {
            process = new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(log)).start().toHandle();
        }
        STARTED.add(process);
    }

    /** Starts a command of Fencepost's by interop/launcher.py; the number of its process. */
    private static synchronized long launched(List<String> words, File log) throws IOException {
        if (launcher == null) {
            launcher = new ProcessBuilder(System.getProperty("interop.python"), "-m", "interop.launcher")
                .redirectError(new File(System.getProperty("interop.folder"), "launcher.log")).start();
        }
        launcher.getOutputStream().write((JSON.writeValueAsString(Map.of("words", words, "log", log.getPath())) + "\n").getBytes(
            StandardCharsets.UTF_8));
        launcher.getOutputStream().flush();
        return Long.parseLong(launcher.inputReader().readLine());
    }

    /** Returns once the server serves. */
    void await() throws IOException, InterruptedException {
        for (int tries = 0; tries < 600; tries++) {
            if (!process.isAlive()) {
                throw new IOException("ended, see " + log);
            }
            if (answers()) {
                return;
            }
            Thread.sleep(50);
        }
        throw new IOException("does not serve, see " + log);
    }

    Void start() throws IOException, InterruptedException {
        launch();
        await();
        return null;
    }

    /** A bookie serves once it answers a read of version 2, whatever it answers; its port may be open long before. */
    private boolean answers() {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress("127.0.0.1", port), 1000);
            socket.setSoTimeout(2000);
            if (bookie) {
                DataOutputStream out = new DataOutputStream(socket.getOutputStream());
                out.writeInt(20);
                out.writeInt(2 << 24 | 2 << 16);
                out.writeLong(1L << 40);
                out.writeLong(0);
                out.flush();
                new DataInputStream(socket.getInputStream()).readInt();
            }
            return true;
        } catch (IOException notYet) {
            return false;
        }
    }

    Void stop() throws InterruptedException, IOException {
        if (isAlive()) {
            signal("CONT");
            process.destroy();
            try {
                process.onExit().get(10, TimeUnit.SECONDS);
            } catch (ExecutionException | TimeoutException stuck) {
                kill();
            }
        }
        return null;
    }

    void kill() {
        if (process != null) {
            process.destroyForcibly();
            process.onExit().join();
            STARTED.remove(process);
        }
    }

    Void signal(String name) throws IOException, InterruptedException {
        if (isAlive()) {
            new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
        }
        return null;
    }
}
