package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.RequestHeaderDataJsonConverter;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.message.ResponseHeaderDataJsonConverter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.RequestUtils;

/**
 * Kafka's own codec. Each line of standard input is a message: {"api", "of": "Request" or "Response", "version"}, and either "header"
 * and "body", of which the bytes are printed in hexadecimal, or "bytes", of which header and body are printed.
 */
final class Codec {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] words) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = JSON.readTree(line);
            String answer;
            try {
                answer = asked.has("bytes") ? read(asked) : written(asked);
            } catch (ReflectiveOperationException | RuntimeException refused) {
                Throwable cause = refused.getCause() == null ? refused : refused.getCause();
                answer = "refused: " + String.valueOf(cause).replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static Class<?> named(JsonNode asked, String suffix) throws ClassNotFoundException {
        return Class.forName("org.apache.kafka.common.message." + asked.get("api").asText() + asked.get("of").asText() + suffix);
    }

    private static short headerVersion(JsonNode asked, short version) {
        ApiKeys api = ApiKeys.valueOf(asked.get("api").asText().replaceAll("(?<=[a-z])(?=[A-Z])", "_").toUpperCase());
        return asked.get("of").asText().equals("Request") ? api.requestHeaderVersion(version) : api.responseHeaderVersion(version);
    }

    private static String written(JsonNode asked) throws ReflectiveOperationException {
        short version = (short) asked.get("version").asInt();
        short headerVersion = headerVersion(asked, version);
        ApiMessage header = asked.get("of").asText().equals("Request")
            ? RequestHeaderDataJsonConverter.read(asked.get("header"), headerVersion)
            : ResponseHeaderDataJsonConverter.read(asked.get("header"), headerVersion);
        Object body = named(asked, "DataJsonConverter").getMethod("read", JsonNode.class, short.class).invoke(null, asked.get("body"), version);
        ByteBuffer bytes = RequestUtils.serialize(header, headerVersion, (ApiMessage) body, version);
        byte[] all = new byte[bytes.remaining()];
        bytes.get(all);
        return HexFormat.of().formatHex(all);
    }

    private static String read(JsonNode asked) throws ReflectiveOperationException {
        short version = (short) asked.get("version").asInt();
        short headerVersion = headerVersion(asked, version);
        ByteBufferAccessor bytes = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(asked.get("bytes").asText())));
        JsonNode header = asked.get("of").asText().equals("Request")
            ? RequestHeaderDataJsonConverter.write(new RequestHeaderData(bytes, headerVersion), headerVersion)
            : ResponseHeaderDataJsonConverter.write(new ResponseHeaderData(bytes, headerVersion), headerVersion);
        ApiMessage body = (ApiMessage) named(asked, "Data").getConstructor().newInstance();
        body.read(bytes, version);
        if (bytes.remaining() != 0) {
            return "refused: " + bytes.remaining() + " bytes too many";
        }
        Object written = named(asked, "DataJsonConverter").getMethod("write", body.getClass(), short.class).invoke(null, body, version);
        return JSON.createObjectNode().<com.fasterxml.jackson.databind.node.ObjectNode>set("header", header).set("body", (JsonNode) written).toString();
    }
}
