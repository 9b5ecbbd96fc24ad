package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Pulsar's client, asked by {@link Lines}. Message {@code n} has the hexadecimal SHA-256 of its number, repeated;
 * interop/pulsar_broker.py makes the same bytes.
 */
public final class Messages {
    private static final int IN_FLIGHT = 500;
    private static final String NUMBER = "number";

    private PulsarClient client;

    private Messages(Map<String, Lines.Operation> operations) {
        operations.put("connect", given -> {
            client = PulsarClient.builder().serviceUrl(given.get("url").asText()).enableTransaction(true)
                .operationTimeout(60, TimeUnit.SECONDS).build();
            return null;
        });
        operations.put("produce", this::produce);
        operations.put("consume", this::consume);
        operations.put("transact", this::transact);
    }

    public static void main(String[] arguments) throws Exception {
        Lines lines = new Lines(thrown -> thrown.getClass().getSimpleName());
        new Messages(lines.operations);
        lines.serve();
    }

    private static String body(long number, int size) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(Long.toString(number).getBytes());
        String text = HexFormat.of().formatHex(digest);
        return text.repeat(size / text.length() + 1).substring(0, size);
    }

    private Producer<String> producer(JsonNode given) throws Exception {
        // A producer with this name goes on with the sequence ids that the broker has of it, which drops what was sent twice.
        return client.newProducer(Schema.STRING).topic(given.get("topic").asText()).producerName("interop")
            .enableBatching(given.path("batches").asBoolean(true)).batchingMaxMessages(50).sendTimeout(0, TimeUnit.SECONDS)
            .maxPendingMessages(2 * IN_FLIGHT).blockIfQueueFull(true).create();
    }

    /** Send {@code count} messages from {@code first} on, at most {@code rate} a second; how many were acknowledged. */
    private Object produce(JsonNode given) throws Exception {
        long first = given.get("first").asLong();
        long count = given.get("count").asLong();
        int size = given.get("size").asInt();
        double rate = given.path("rate").asDouble(1e9);
        long keys = given.path("keys").asLong(Long.MAX_VALUE);
        Semaphore room = new Semaphore(IN_FLIGHT);
        List<Throwable> failures = new ArrayList<>();
        try (Producer<String> producer = producer(given)) {
            long began = System.nanoTime();
            for (long number = first; number < first + count; number++) {
                long early = began + (long) ((number - first) / rate * 1e9) - System.nanoTime();
                if (early > 0) {
                    LockSupport.parkNanos(early);
                }
                room.acquire();
                producer.newMessage().key(Long.toString(number % keys)).property(NUMBER, Long.toString(number))
                    .value(body(number, size)).sequenceId(number).sendAsync().whenComplete((id, thrown) -> {
                        if (thrown != null) {
                            synchronized (failures) {
                                failures.add(thrown);
                            }
                        }
                        room.release();
                    });
            }
            producer.flush();
            room.acquire(IN_FLIGHT);
        }
        synchronized (failures) {
            if (!failures.isEmpty()) {
                throw new IllegalStateException(failures.size() + " sends failed, one of them by " + failures.get(0));
            }
        }
        return count;
    }

    private Consumer<String> consumer(JsonNode given) throws Exception {
        return client.newConsumer(Schema.STRING).topic(given.get("topic").asText()).subscriptionName(given.get("subscription").asText())
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscriptionType(SubscriptionType.Exclusive)
            .readCompacted(given.path("compacted").asBoolean()).isAckReceiptEnabled(true).subscribe();
    }

    /**
     * Receive until there are {@code count} messages, each of which is acknowledged, and none for {@code seconds}. Gives how many
     * came in order, how many came that are not later than one before, how many acknowledgements were lost with a connection, and the
     * SHA-256 of those in order. A message whose acknowledgement was lost comes again.
     */
    private Object consume(JsonNode given) throws Exception {
        long count = given.get("count").asLong();
        int quiet = given.path("seconds").asInt(60);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        List<CompletableFuture<Void>> acknowledged = new ArrayList<>();
        long last = Long.MIN_VALUE;
        long came = 0;
        long again = 0;
        long lost = 0;
        try (Consumer<String> consumer = consumer(given)) {
            while (came < count) {
                Message<String> message = consumer.receive(quiet, TimeUnit.SECONDS);
                if (message == null) {
                    break;
                }
                long number = Long.parseLong(message.getProperty(NUMBER));
                if (number > last) {
                    last = number;
                    came++;
                    digest.update(message.getData());
                } else {
                    again++;
                }
                acknowledged.add(consumer.acknowledgeAsync(message));
                if (acknowledged.size() == IN_FLIGHT) {
                    lost += lost(acknowledged);
                    acknowledged.clear();
                }
            }
            lost += lost(acknowledged);
        }
        return Map.of("count", came, "again", again, "lost", lost, "digest", HexFormat.of().formatHex(digest.digest()));
    }

    private static long lost(List<CompletableFuture<Void>> acknowledged) {
        return acknowledged.stream().filter(each -> each.handle((done, thrown) -> thrown != null).join()).count();
    }

    /** Take {@code count} messages of one topic to another, ten in a transaction, every third of which is aborted and done again. */
    private Object transact(JsonNode given) throws Exception {
        long count = given.get("count").asLong();
        long aborted = 0;
        List<MessageId> taken = new ArrayList<>();
        List<Message<String>> batch = new ArrayList<>();
        try (Consumer<String> consumer = consumer(given);
                Producer<String> producer = client.newProducer(Schema.STRING).topic(given.get("to").asText())
                    .sendTimeout(0, TimeUnit.SECONDS).create()) {
            for (long done = 0; done < count; done += batch.size()) {
                batch.clear();
                while (batch.size() < 10 && done + batch.size() < count) {
                    batch.add(consumer.receive(60, TimeUnit.SECONDS));
                }
                for (boolean commit = done / 10 % 3 != 2; ; commit = true) {
                    Transaction transaction = client.newTransaction().withTransactionTimeout(2, TimeUnit.MINUTES).build().get();
                    List<CompletableFuture<?>> parts = new ArrayList<>();
                    for (Message<String> message : batch) {
                        parts.add(producer.newMessage(transaction).property(NUMBER, message.getProperty(NUMBER))
                            .value(message.getValue()).sendAsync());
                        parts.add(consumer.acknowledgeAsync(message.getMessageId(), transaction));
                    }
                    CompletableFuture.allOf(parts.toArray(CompletableFuture[]::new)).get();
                    if (commit) {
                        transaction.commit().get();
                        break;
                    }
                    transaction.abort().get();
                    aborted++;
                }
            }
        }
        return aborted;
    }
}
