import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.header.Headers;

/** What a reader of a topic got, as want.txt has it. */
public class Values {
    private final boolean whole;
    private final List<String> values = new ArrayList<>();
    private long last = System.nanoTime();

    public Values(String topic) {
        whole = topic.equals("nulls");
    }

    public void add(byte[] key, byte[] value, Headers headers) {
        var header = headers.lastHeader("header");
        add(key, value, header == null ? null : header.value());
    }

    public synchronized void add(byte[] key, byte[] value, byte[] header) {
        values.add(whole ? text(key) + ":" + text(value) + ":" + text(header) : text(value));
        last = System.nanoTime();
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "null" : new String(bytes, StandardCharsets.UTF_8);
    }

    /** Tells whether to wait for more: records follow each other at once, and only the first takes its time. */
    public synchronized boolean more() {
        return System.nanoTime() - last < (values.isEmpty() ? 30e9 : 3e9);
    }

    public void awaitAll() throws InterruptedException {
        while (more()) {
            Thread.sleep(100);
        }
    }

    @Override
    public synchronized String toString() {
        return String.join(" ", values);
    }
}
