package org.apache.bookkeeper.test;

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
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * A bookie or a metadata service as a process: Fencepost's, or the real one.
 *
 * <p>System properties say what to start: interop.python, the interpreter; interop.bookies and interop.metadata, "fencepost", "java" or
 * "zookeeper"; interop.folder, where data and logs go; interop.jvm, the words of a Java command line ahead of the class, one a line.
 */
final class ServerProcess {
    private static final Set<Process> STARTED = ConcurrentHashMap.newKeySet();

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> STARTED.forEach(Process::destroyForcibly)));
    }

    private final List<String> command;
    private final int port;
    private final boolean bookie;
    private final File log;
    private Process process;

    private ServerProcess(String name, int port, boolean bookie, List<String> command) {
        this.command = command;
        this.port = port;
        this.bookie = bookie;
        this.log = new File(System.getProperty("interop.folder"), name + "-" + port + ".log");
    }

    private static List<String> fencepost(String... words) {
        List<String> command = new ArrayList<>(List.of(System.getProperty("interop.python"), "-m", "fencepost"));
        command.addAll(List.of(words));
        return command;
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
        if (System.getProperty("interop.metadata").equals("fencepost")) {
            command = fencepost("metadata", folder.getPath(), "--port", Integer.toString(port));
        } else {
            File settings = new File(folder, "zoo.cfg");
            Files.writeString(settings.toPath(), "tickTime=500\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\ndataDir="
                + folder + "/data\nclientPort=" + port + "\nmaxClientCnxns=200\n4lw.commands.whitelist=*\n");
            command = java("org.apache.zookeeper.server.quorum.QuorumPeerMain", settings.getPath());
        }
        return new ServerProcess("metadata", port, false, command);
    }

    static ServerProcess bookie(ServerConfiguration conf) throws IOException {
        int port = conf.getBookiePort();
        File folder = conf.getLedgerDirs()[0];
        List<String> command;
        if (System.getProperty("interop.bookies").equals("fencepost")) {
            String uri = conf.getMetadataServiceUriUnchecked().replaceFirst("zk\\+[a-z]*:", "zk:");
            command = fencepost("bookie", new File(folder, "data").getPath(), "--metadata", uri, "--port", Integer.toString(port));
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
        return new ServerProcess("bookie", port, true, command);
    }

    boolean isAlive() {
        return process != null && process.isAlive();
    }

    void launch() throws IOException {
        process = new ProcessBuilder(command).redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(log)).start();
        STARTED.add(process);
    }

    /** Returns once the server serves. */
    void await() throws IOException, InterruptedException {
        for (int tries = 0; tries < 600; tries++) {
            if (!process.isAlive()) {
                throw new IOException("ended with " + process.exitValue() + ", see " + log);
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
            if (!process.waitFor(10, TimeUnit.SECONDS)) {
                kill();
            }
        }
        return null;
    }

    void kill() throws InterruptedException {
        if (process != null) {
            process.destroyForcibly().waitFor();
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
