package interop;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;

/** Adds and reads for a number of seconds with a fixed number in flight: how many, and their latencies. */
final class Load {
    private interface Request {
        CompletableFuture<?> send();
    }

    private Load() {
    }

    static Object writes(WriteHandle ledger, int size, int inFlight, double seconds) throws Exception {
        byte[] data = new byte[size];
        ThreadLocalRandom.current().nextBytes(data);
        return load(() -> ledger.appendAsync(data), inFlight, seconds);
    }

    static Object reads(ReadHandle ledger, int inFlight, double seconds) throws Exception {
        long entries = ledger.getLastAddConfirmed() + 1;
        long[] next = {0};
        return load(() -> {
            long entry = next[0]++ % entries;
            return ledger.readAsync(entry, entry).thenAccept(found -> {
                try (found) {
                    found.getEntry(entry).getEntryBytes();
                }
            });
        }, inFlight, seconds);
    }

    /** In order: eight calls are open at any time, each for an eighth of the entries in flight. Bytes are looked at where they lie. */
    static Object scans(ReadHandle ledger, int inFlight, double seconds) throws Exception {
        long last = ledger.getLastAddConfirmed();
        int portion = (int) Math.min(Math.max(1, inFlight / 8), last + 1);
        long[] next = {0};
        LongAdder read = new LongAdder();
        LongAdder bytes = new LongAdder();
        Map<String, Object> found = load(() -> {
            long first = next[0] + portion - 1 > last ? 0 : next[0];
            next[0] = first + portion;
            return ledger.readAsync(first, first + portion - 1).thenAccept(entries -> {
                long size = 0;
                try (entries) {
                    for (LedgerEntry entry : entries) {
                        size += entry.getEntryBuffer().readableBytes();
                    }
                }
                read.add(portion);
                bytes.add(size);
            });
        }, Math.max(1, inFlight / portion), seconds);
        Map<String, Object> told = new HashMap<>(found);
        told.put("entries", read.sum());
        told.put("bytes", bytes.sum());
        told.put("p50", 0);
        told.put("p99", 0);
        return told;
    }

    private static Map<String, Object> load(Request request, int inFlight, double seconds) throws Exception {
        Semaphore free = new Semaphore(inFlight);
        Latencies latencies = new Latencies();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        long began = System.nanoTime();
        long end = began + (long) (seconds * 1e9);
        while (System.nanoTime() < end && failure.get() == null) {
            free.acquire();
            long sent = System.nanoTime();
            request.send().whenComplete((answer, thrown) -> {
                if (thrown != null) {
                    failure.compareAndSet(null, thrown);
                } else {
                    latencies.add(System.nanoTime() - sent);
                }
                free.release();
            });
        }
        free.acquire(inFlight);
        double took = (System.nanoTime() - began) / 1e9;
        if (failure.get() != null) {
            throw new Exception(failure.get());
        }
        return latencies.report(took);
    }

    private static final class Latencies {
        private long[] nanoseconds = new long[1 << 16];
        private int count;

        synchronized void add(long one) {
            if (count == nanoseconds.length) {
                nanoseconds = Arrays.copyOf(nanoseconds, 2 * count);
            }
            nanoseconds[count++] = one;
        }

        synchronized Map<String, Object> report(double seconds) {
            long[] sorted = Arrays.copyOf(nanoseconds, count);
            Arrays.sort(sorted);
            return Map.of("entries", count, "samples", count, "seconds", seconds,
                "p50", count == 0 ? 0 : sorted[count / 2] / 1e6, "p99", count == 0 ? 0 : sorted[(int) (count * 0.99)] / 1e6);
        }
    }
}
