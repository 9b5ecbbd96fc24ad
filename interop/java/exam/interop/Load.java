package interop;

import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicReference;
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

    private static Object load(Request request, int inFlight, double seconds) throws Exception {
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

        synchronized Object report(double seconds) {
            long[] sorted = Arrays.copyOf(nanoseconds, count);
            Arrays.sort(sorted);
            return Map.of("entries", count, "seconds", seconds,
                "p50", count == 0 ? 0 : sorted[count / 2] / 1e6, "p99", count == 0 ? 0 : sorted[(int) (count * 0.99)] / 1e6);
        }
    }
}
