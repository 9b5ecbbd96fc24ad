package interop;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.bookie.BookieShell;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ListLedgersResult;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.util.EntryFormatter;
import org.apache.bookkeeper.util.LedgerIdFormatter;

/**
 * The Java client, asked by {@link Lines}. interop/exam.py answers the same operations with Fencepost's client.
 */
public final class Exam {
    private static final ObjectMapper JSON = Lines.JSON;

    private final Map<Integer, BookKeeper> clients = new ConcurrentHashMap<>();
    private final Map<Integer, ReadHandle> handles = new ConcurrentHashMap<>();
    private final Map<Integer, List<WriteHandle>> many = new ConcurrentHashMap<>();
    private final AtomicInteger numbers = new AtomicInteger();

    private Exam(Map<String, Lines.Operation> operations) {
        operations.put("connect", this::connect);
        operations.put("disconnect", this::disconnect);
        operations.put("create", this::create);
        operations.put("open", this::open);
        operations.put("append", this::append);
        operations.put("force", given -> {
            writer(given).force().get();
            return null;
        });
        operations.put("close", given -> {
            handle(given).close();
            return null;
        });
        operations.put("read", given -> entries(
            handle(given).readAsync(given.get("first").asLong(), given.get("last").asLong()).get()));
        operations.put("read_unconfirmed", given -> entries(
            handle(given).readUnconfirmedAsync(given.get("first").asLong(), given.get("last").asLong()).get()));
        operations.put("batch_read", given -> entries(
            handle(given).batchReadAsync(given.get("first").asLong(), given.get("count").asInt(), given.get("size").asLong()).get()));
        operations.put("tail", this::tail);
        operations.put("lac", given -> handle(given).getLastAddConfirmed());
        operations.put("read_lac", given -> handle(given).readLastAddConfirmedAsync().get());
        operations.put("explicit_lac", given -> ((LedgerHandle) handle(given)).readExplicitLastConfirmed());
        operations.put("length", given -> handle(given).getLength());
        operations.put("metadata", given -> metadata(client(given).getLedgerMetadata(given.get("ledger").asLong()).get()));
        operations.put("list", this::list);
        operations.put("delete", given -> client(given).newDeleteLedgerOp()
            .withLedgerId(given.get("ledger").asLong()).execute().get());
        operations.put("bookie_info", this::bookieInfo);
        operations.put("shell", this::shell);
        operations.put("shell_commands", this::shellCommands);
        operations.put("load_writes", given -> Load.writes((WriteHandle) handle(given), given.get("size").asInt(),
            given.get("in_flight").asInt(), given.get("seconds").asDouble()));
        operations.put("load_reads", given -> Load.reads(handle(given), given.get("in_flight").asInt(),
            given.get("seconds").asDouble()));
        operations.put("load_scans", given -> Load.scans(handle(given), given.get("in_flight").asInt(),
            given.get("seconds").asDouble()));
        operations.put("many_create", given -> {
            List<WriteHandle> ledgers = new ArrayList<>();
            double seconds = Load.create(client(given), given.get("ledgers").asInt(), ledgers);
            many.put(given.get("client").asInt(), ledgers);
            return Map.of("ledgers", ledgers.stream().map(WriteHandle::getId).toList(), "seconds", seconds);
        });
        operations.put("many_writes", given -> Load.writes(many.get(given.get("client").asInt()), given.get("size").asInt(),
            given.get("period").asDouble(), given.get("seconds").asDouble()));
        operations.put("many_tails", given -> Load.tails(client(given),
            JSON.convertValue(given.get("ledgers"), new TypeReference<List<Long>>() { }), given.get("seconds").asDouble()));
    }

    public static void main(String[] arguments) throws Exception {
        Lines lines = new Lines(thrown -> {
            String name = thrown.getClass().getSimpleName();
            return thrown instanceof BKException ? name.replaceFirst("^BK", "") : name;
        });
        new Exam(lines.operations);
        lines.serve();
    }

    private BookKeeper client(JsonNode given) {
        return clients.get(given.get("client").asInt());
    }

    private ReadHandle handle(JsonNode given) {
        return handles.get(given.get("handle").asInt());
    }

    private WriteHandle writer(JsonNode given) {
        return (WriteHandle) handle(given);
    }

    private static DigestType digest(JsonNode given) {
        return DigestType.valueOf(given.path("digest").asText("CRC32C"));
    }

    private static byte[] password(JsonNode given) {
        return given.path("password").asText("").getBytes(StandardCharsets.UTF_8);
    }

    private Object connect(JsonNode given) throws Exception {
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMetadataServiceUri(given.get("uri").asText());
        settings.setZkTimeout(10_000);
        // The client's own limit, 5,000 operations a second, would be what a measurement finds.
        settings.setThrottleValue(0);
        given.path("settings").fields().forEachRemaining(
            setting -> settings.setProperty(setting.getKey(), setting.getValue().asText()));
        int number = numbers.incrementAndGet();
        clients.put(number, new BookKeeper(settings));
        return number;
    }

    private Object disconnect(JsonNode given) throws Exception {
        clients.remove(given.get("client").asInt()).close();
        return null;
    }

    private Object opened(ReadHandle handle) {
        int number = numbers.incrementAndGet();
        handles.put(number, handle);
        return Map.of("handle", number, "ledger", handle.getId());
    }

    private Object create(JsonNode given) throws Exception {
        Map<String, byte[]> custom = new HashMap<>();
        given.path("custom_metadata").fields().forEachRemaining(
            entry -> custom.put(entry.getKey(), entry.getValue().asText().getBytes(StandardCharsets.UTF_8)));
        EnumSet<WriteFlag> flags = given.path("deferred_sync").asBoolean()
            ? EnumSet.of(WriteFlag.DEFERRED_SYNC) : EnumSet.noneOf(WriteFlag.class);
        return opened(client(given).newCreateLedgerOp()
            .withEnsembleSize(given.path("ensemble").asInt(3))
            .withWriteQuorumSize(given.path("write_quorum").asInt(3))
            .withAckQuorumSize(given.path("ack_quorum").asInt(2))
            .withDigestType(digest(given))
            .withPassword(password(given))
            .withCustomMetadata(custom)
            .withWriteFlags(flags)
            .execute().get());
    }

    private Object open(JsonNode given) throws Exception {
        return opened(client(given).newOpenLedgerOp()
            .withLedgerId(given.get("ledger").asLong())
            .withDigestType(digest(given))
            .withPassword(password(given))
            .withRecovery(given.path("recover").asBoolean(true))
            .execute().get());
    }

    private Object append(JsonNode given) throws Exception {
        List<CompletableFuture<Long>> pending = new ArrayList<>();
        for (JsonNode entry : given.get("entries")) {
            pending.add(writer(given).appendAsync(Base64.getDecoder().decode(entry.asText())));
        }
        List<Long> ids = new ArrayList<>();
        for (CompletableFuture<Long> entry : pending) {
            ids.add(entry.get());
        }
        return ids;
    }

    private static ArrayNode entry(LedgerEntry entry) {
        return JSON.createArrayNode()
            .add(entry.getEntryId())
            .add(entry.getLength())
            .add(Base64.getEncoder().encodeToString(entry.getEntryBytes()));
    }

    private static Object entries(LedgerEntries entries) {
        ArrayNode all = JSON.createArrayNode();
        try (entries) {
            entries.forEach(entry -> all.add(entry(entry)));
        }
        return all;
    }

    /** Waits for entries from "first" on until there are "count", asking with a long poll, as a tailing reader does. */
    private Object tail(JsonNode given) throws Exception {
        ArrayNode all = JSON.createArrayNode();
        long next = given.get("first").asLong();
        while (all.size() < given.get("count").asInt()) {
            try (LastConfirmedAndEntry seen = handle(given).readLastAddConfirmedAndEntryAsync(next, 2_000, false).get()) {
                if (seen.hasEntry()) {
                    all.add(entry(seen.getEntry()));
                    next++;
                }
            }
        }
        return all;
    }

    private Object metadata(LedgerMetadata metadata) {
        Map<String, Object> told = new HashMap<>();
        told.put("state", metadata.getState().toString());
        told.put("ensemble", metadata.getEnsembleSize());
        told.put("write_quorum", metadata.getWriteQuorumSize());
        told.put("ack_quorum", metadata.getAckQuorumSize());
        told.put("last_entry", metadata.isClosed() ? metadata.getLastEntryId() : -1);
        told.put("length", metadata.isClosed() ? metadata.getLength() : 0);
        told.put("digest", metadata.getDigestType().toString());
        Map<String, List<String>> ensembles = new HashMap<>();
        metadata.getAllEnsembles().forEach((first, bookies) ->
            ensembles.put(first.toString(), bookies.stream().map(BookieId::toString).toList()));
        told.put("ensembles", ensembles);
        Map<String, String> custom = new HashMap<>();
        metadata.getCustomMetadata().forEach((key, value) -> custom.put(key, new String(value, StandardCharsets.UTF_8)));
        told.put("custom_metadata", custom);
        return told;
    }

    private Object list(JsonNode given) throws Exception {
        List<Long> ledgers = new ArrayList<>();
        try (ListLedgersResult all = client(given).newListLedgersOp().execute().get()) {
            all.toIterable().forEach(ledgers::add);
        }
        return ledgers;
    }

    private Object bookieInfo(JsonNode given) throws Exception {
        Map<String, List<Long>> told = new HashMap<>();
        client(given).getBookieInfo().forEach(
            (bookie, info) -> told.put(bookie.toString(), List.of(info.getTotalDiskSpace(), info.getFreeDiskSpace())));
        return told;
    }

    /** Runs a command of BookieShell in this process, one at a time; its exit status and what it printed. */
    private Object shellCommands(JsonNode given) throws Exception {
        Field commands = BookieShell.class.getDeclaredField("commands");
        commands.setAccessible(true);
        return ((Map<?, ?>) commands.get(new BookieShell())).keySet();
    }

    private synchronized Object shell(JsonNode given) throws Exception {
        ServerConfiguration settings = new ServerConfiguration();
        settings.setMetadataServiceUri(given.get("uri").asText());
        settings.setZkTimeout(10_000);
        settings.setAllowLoopback(true);
        settings.setLedgerDirNames(new String[] {given.get("folder").asText()});
        settings.setJournalDirName(given.get("folder").asText());
        given.path("settings").fields().forEachRemaining(
            field -> settings.setProperty(field.getKey(), field.getValue().asText()));
        String[] words = JSON.convertValue(given.get("words"), String[].class);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            BookieShell shell = new BookieShell(
                LedgerIdFormatter.newLedgerIdFormatter(settings), EntryFormatter.newEntryFormatter(settings));
            shell.setConf(settings);
            int status = shell.run(words);
            return Map.of("status", status, "printed", printed.toString(StandardCharsets.UTF_8));
        } finally {
            System.setOut(before);
        }
    }
}
