package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;

/**
 * Operations, asked over standard input and answered on standard output, one JSON object a line.
 *
 * <p>A request has a number ("id"), an operation ("do") and its arguments; the answer has the same number and either "result" or
 * "error", the name of an exception, with "message". Requests are carried out at the same time, each on a thread of its own, so
 * that one can wait for what another does.
 */
final class Lines {
    static final ObjectMapper JSON = new ObjectMapper();

    interface Operation {
        Object run(JsonNode arguments) throws Exception;
    }

    final Map<String, Operation> operations = new HashMap<>();
    private final PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final Function<Throwable, String> name;

    /** From now on, whatever else is printed goes to standard error. {@code name} gives the name of an exception. */
    Lines(Function<Throwable, String> name) {
        this.name = name;
        System.setOut(System.err);
    }

    /** Answer until standard input ends; then the program ends. */
    void serve() throws IOException {
        ExecutorService threads = Executors.newCachedThreadPool(work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        });
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            threads.submit(() -> answer(request));
        }
        System.exit(0);
    }

    private void answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        answer.set("id", request.get("id"));
        try {
            Operation operation = operations.get(request.get("do").asText());
            if (operation == null) {
                throw new UnsupportedOperationException(request.get("do").asText());
            }
            answer.set("result", JSON.valueToTree(operation.run(request)));
        } catch (Throwable thrown) {
            Throwable cause = thrown;
            while ((cause instanceof ExecutionException || cause instanceof CompletionException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            answer.put("error", name.apply(cause));
            answer.put("message", String.valueOf(cause.getMessage()));
        }
        synchronized (answers) {
            answers.println(answer);
        }
    }
}
