package interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;

/** Adds and reads for a number of seconds with a fixed number in flight: how many, and their latencies. */
final class Load {
    /** Ledgers that are created or opened at once. */
    private static final int AT_ONCE = 64;

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

    /** Creates so many ledgers on three bookies; in how many seconds. */
    static double create(BookKeeper client, int ledgers, List<WriteHandle> into) throws Exception {
        Semaphore free = new Semaphore(AT_ONCE);
        List<CompletableFuture<WriteHandle>> created = new ArrayList<>();
        long began = System.nanoTime();
        for (int number = 0; number < ledgers; number++) {
            free.acquire();
            CompletableFuture<WriteHandle> one = client.newCreateLedgerOp().withEnsembleSize(3).withWriteQuorumSize(3)
                .withAckQuorumSize(2).withDigestType(DigestType.CRC32C).withPassword(new byte[0]).execute();
            created.add(one.whenComplete((handle, thrown) -> free.release()));
        }
        for (CompletableFuture<WriteHandle> one : created) {
            into.add(one.get());
        }
        return (System.nanoTime() - began) / 1e9;
    }

    /** Appends an entry to each ledger every "period" seconds, the ledgers one after another. */
    static Object writes(List<WriteHandle> ledgers, int size, double period, double seconds) throws Exception {
        byte[] data = new byte[size];
        ThreadLocalRandom.current().nextBytes(data);
        Latencies latencies = new Latencies();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        double pause = period / ledgers.size();
        int turns = (int) (seconds / pause);
        Semaphore done = new Semaphore(0);
        long began = System.nanoTime();
        for (int turn = 0; turn < turns; turn++) {
            long early = began + (long) (turn * pause * 1e9) - System.nanoTime();
            if (early > 0) {
                LockSupport.parkNanos(early);
            }
            long sent = System.nanoTime();
            ledgers.get(turn % ledgers.size()).appendAsync(data).whenComplete((entry, thrown) -> {
                if (thrown != null) {
                    failure.compareAndSet(null, thrown);
                } else {
                    latencies.add(System.nanoTime() - sent);
                }
                done.release();
            });
        }
        done.acquire(turns);
        if (failure.get() != null) {
            throw new Exception(failure.get());
        }
        return latencies.report((System.nanoTime() - began) / 1e9);
    }

    /** Follows each of these ledgers from its end on, by a long poll; how many entries came. */
    static Object tails(BookKeeper client, List<Long> ledgers, double seconds) throws Exception {
        Semaphore free = new Semaphore(AT_ONCE);
        List<CompletableFuture<ReadHandle>> opened = new ArrayList<>();
        for (long ledger : ledgers) {
            free.acquire();
            opened.add(client.newOpenLedgerOp().withLedgerId(ledger).withDigestType(DigestType.CRC32C)
                .withPassword(new byte[0]).withRecovery(false).execute()
                .whenComplete((handle, thrown) -> free.release()));
        }
        LongAdder entries = new LongAdder();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        List<ReadHandle> handles = new ArrayList<>();
        for (CompletableFuture<ReadHandle> one : opened) {
            handles.add(one.get());
        }
        long began = System.nanoTime();
        long end = began + (long) (seconds * 1e9);
        for (ReadHandle handle : handles) {
            follow(handle, handle.getLastAddConfirmed() + 1, end, entries, failure);
        }
        while (System.nanoTime() < end && failure.get() == null) {
            Thread.sleep(20);
        }
        if (failure.get() != null) {
            throw new Exception(failure.get());
        }
        long found = entries.sum();
        double took = (System.nanoTime() - began) / 1e9;
        for (ReadHandle handle : handles) {
            handle.close();
        }
        return Map.of("entries", found, "seconds", took);
    }

    private static void follow(ReadHandle handle, long next, long end, LongAdder entries, AtomicReference<Throwable> failure) {
        handle.readLastAddConfirmedAndEntryAsync(next, 2_000, false).whenComplete((seen, thrown) -> {
            if (System.nanoTime() >= end) {
                return;
            }
            if (thrown != null) {
                failure.compareAndSet(null, thrown);
                return;
            }
            try (seen) {
                if (seen.hasEntry()) {
                    entries.increment();
                }
                follow(handle, seen.hasEntry() ? next + 1 : next, end, entries, failure);
            }
        });
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
