import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.details.JsonInstanceSerializer;

/**
 * Reads instances of services as Apache Curator does. A line on standard input is the class of the payload and the data of a znode,
 * in base64. It is answered by "refused" with the reason, or by "read" with the payload, as Java sees it, and the instance as Curator
 * writes it, "?" where it cannot: separated by tabs.
 */
public class Instances {
    /** A payload with floats in every place. */
    public static class Nested {
        public double real;
        public Double boxed;
        public float single;
        public long whole;
        public Object any;
        public List<Object> list;
        public Map<String, Object> map;
        public Nested inner;

        @Override
        public String toString() {
            return "Nested(" + String.join(" ", Double.toString(real), show(boxed), Float.toString(single), Long.toString(whole), show(any), show(list),
                    show(map), show(inner)) + ")";
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 2);
            out.println(answer(Class.forName(words[0]), Base64.getDecoder().decode(words[1])).replace('\n', ' '));
        }
    }

    static <T> String answer(Class<T> payload, byte[] data) {
        JsonInstanceSerializer<T> serializer = new JsonInstanceSerializer<>(payload, false);
        ServiceInstance<T> instance;
        try {
            instance = serializer.deserialize(data);
        } catch (Exception e) {
            return "refused\t" + e;
        }
        String written = "?";
        try {
            written = new String(serializer.serialize(instance), StandardCharsets.UTF_8);
        } catch (Exception e) {
            // a list of parts that is null, for instance
        }
        return "read\t" + show(instance.getPayload()) + "\t" + written;
    }

    static String show(Object o) {
        if (o instanceof Collection) {
            StringBuilder all = new StringBuilder();
            for (Object one : (Collection<?>) o) {
                all.append(all.length() == 0 ? "" : ", ").append(show(one));
            }
            return "[" + all + "]";
        }
        if (o instanceof Map) {
            StringBuilder all = new StringBuilder();
            for (Map.Entry<?, ?> one : new TreeMap<>((Map<?, ?>) o).entrySet()) {
                all.append(all.length() == 0 ? "" : ", ").append(one.getKey()).append(": ").append(show(one.getValue()));
            }
            return "{" + all + "}";
        }
        return o == null ? "null" : o instanceof Nested ? o.toString() : o.getClass().getSimpleName() + " " + o;
    }
}
