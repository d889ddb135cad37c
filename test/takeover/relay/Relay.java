import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;

/**
 * Models of the relays that outbox-cdc replaces: their SQL, their locks (the real ShedLock), their
 * producer settings, with Kafka's own Java client. One process is one application.
 *
 * <p>Arguments are key=value: relay=im2be|advert-market|jeap, jdbc=, user=, password=, brokers=,
 * table=, topic=. On standard input come commands, each on a connection and a producer of its own:
 * "poll key=value …" relays for ever, "write key=value …" writes rows and says "done". On standard
 * output: a line per act ("sent ID", "wrote ID", "lock taken"), for tests to wait for.
 */
public final class Relay {
  private final Map<String, String> options;
  private final Connection db;
  private KafkaProducer<byte[], byte[]> producer;

  private Relay(Map<String, String> options) throws SQLException {
    this.options = options;
    this.db = connect();
  }

  public static void main(String[] args) throws Exception {
    Map<String, String> options = parse(new HashMap<>(), args, 0);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String[] words = line.split(" ");
      Relay relay = new Relay(parse(options, words, 1));
      Thread thread = new Thread(() -> relay.run(words[0]));
      thread.setDaemon(true);
      thread.start();
    }
  }

  private static Map<String, String> parse(Map<String, String> options, String[] words, int from) {
    Map<String, String> all = new HashMap<>(options);
    for (int i = from; i < words.length; i++) {
      String[] kv = words[i].split("=", 2);
      all.put(kv[0], kv[1]);
    }
    return all;
  }

  private void run(String role) {
    try {
      switch (options.get("relay") + " " + role) {
        case "im2be poll" -> locked("outbox-poller", "PT10M", this::im2bePage);
        case "im2be write" -> write(this::im2beWrite);
        case "advert-market poll" -> forEver(this::advertPage);
        case "advert-market write" -> write(this::advertWrite);
        case "jeap poll" -> locked("outbox-message-relay-tasks", "PT862.5S", this::jeapPage);
        case "jeap write" -> write(this::jeapWrite);
        default -> throw new IllegalArgumentException("no such relay and role: " + options + " " + role);
      }
    } catch (Exception e) {
      e.printStackTrace();
      System.exit(1);
    }
  }

  // ---- im2be ----

  private int im2bePage() throws Exception {
    record Row(UUID aggregate, UUID event, String topic, byte[] payload, String parent, String state) {}
    List<Row> page = new ArrayList<>();
    try (PreparedStatement q = db.prepareStatement("SELECT aggregate_id, event_id, topic, payload, trace_parent, trace_state FROM "
        + table() + " WHERE status = 'PENDING' ORDER BY created_at ASC LIMIT " + number("batch", 500))) {
      ResultSet r = q.executeQuery();
      while (r.next()) {
        page.add(new Row((UUID) r.getObject(1), (UUID) r.getObject(2), r.getString(3), r.getBytes(4), r.getString(5), r.getString(6)));
      }
    }
    for (Row row : page) {
      im2beSend(row.aggregate, row.event, row.topic, row.payload, row.parent, row.state);
    }
    return page.size();
  }

  private void im2beSend(UUID aggregate, UUID event, String topic, byte[] payload, String parent, String state) throws Exception {
    ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, aggregate.toString().getBytes(StandardCharsets.UTF_8), payload);
    header(record, "traceparent", parent);
    header(record, "tracestate", state);
    try {
      send(record, 5000);
    } catch (ExecutionException | TimeoutException e) {
      update("UPDATE " + table() + " SET retries = retries + 1, last_error = left(?, 1000), record_version = record_version + 1,"
          + " status = CASE WHEN retries + 1 >= 10 THEN 'FAILED' ELSE status END"
          + " WHERE aggregate_id = ? AND event_id = ? AND status = 'PENDING'", String.valueOf(e.getMessage()), aggregate, event);
      return;
    }
    int n = update("UPDATE " + table() + " SET status = 'SENT', sent_at = ?, last_error = NULL, record_version = record_version + 1"
        + " WHERE aggregate_id = ? AND event_id = ? AND status = 'PENDING'", Timestamp.from(Instant.now()), aggregate, event);
    say((n == 1 ? "sent " : "found terminal ") + event);
  }

  /** One business transaction; after its commit the hot relay, unless its breaker is open. */
  private void im2beWrite(int n, Random random) throws Exception {
    UUID aggregate = new UUID(7, random.nextInt(number("keys", 20))), event = new UUID(8, n);
    byte[] payload = ("{\"n\":" + n + "}").getBytes(StandardCharsets.UTF_8);
    String parent = n % 3 == 0 ? null : String.format("00-%032x-%016x-01", n + 1, n + 1);
    update("INSERT INTO " + table() + " (aggregate_id, event_id, status, topic, payload, schema_version, retries, created_at, record_version, trace_parent, trace_state)"
        + " VALUES (?, ?, 'PENDING', ?, ?, 1, 0, now(), 0, ?, ?)", aggregate, event, options.get("topic"), payload, parent, n % 5 == 0 ? "a=b" : null);
    say("wrote " + event);
    if (random.nextInt(100) < number("hot", 80)) {
      im2beSend(aggregate, event, options.get("topic"), payload, parent, n % 5 == 0 ? "a=b" : null);
    }
  }

  // ---- advert-market ----

  private int advertPage() throws Exception {
    record Row(long id, String topic, String key, String payload, int retries) {}
    List<Row> page = new ArrayList<>();
    db.setAutoCommit(false);
    try (PreparedStatement q = db.prepareStatement("UPDATE " + table() + " SET status = 'PROCESSING', version = version + 1 WHERE id IN (SELECT id FROM "
        + table() + " WHERE status = 'PENDING' AND created_at < now() - interval '1 second' ORDER BY created_at ASC LIMIT " + number("batch", 50)
        + " FOR UPDATE SKIP LOCKED) RETURNING id, topic, partition_key, payload::text, retry_count")) {
      ResultSet r = q.executeQuery();
      while (r.next()) {
        page.add(new Row(r.getLong(1), r.getString(2), r.getString(3), r.getString(4), r.getInt(5)));
      }
    } finally {
      db.commit();
      db.setAutoCommit(true);
    }
    page.sort((a, b) -> Long.compare(a.id, b.id)); // RETURNING promises no order, and nor does the original
    for (Row row : page) {
      say("claimed " + row.id);
      try {
        send(new ProducerRecord<>(row.topic, row.key == null ? null : row.key.getBytes(StandardCharsets.UTF_8), row.payload.getBytes(StandardCharsets.UTF_8)), 5000);
      } catch (ExecutionException | TimeoutException e) {
        update("UPDATE " + table() + " SET status = ?, retry_count = retry_count + 1, version = version + 1 WHERE id = ? AND status = 'PROCESSING'",
            row.retries + 1 >= 3 ? "FAILED" : "PENDING", row.id);
        continue;
      }
      update("UPDATE " + table() + " SET status = 'DELIVERED', processed_at = now(), version = version + 1 WHERE id = ? AND status = 'PROCESSING'", row.id);
      say("sent " + row.id);
    }
    return page.size();
  }

  private void advertWrite(int n, Random random) throws Exception {
    update("INSERT INTO " + table() + " (deal_id, idempotency_key, topic, partition_key, payload, status, retry_count, version, created_at)"
        + " VALUES (?, ?, ?, ?, ?::jsonb, 'PENDING', 0, 0, now())", new UUID(9, n), "key-" + n, options.get("topic"),
        n % 7 == 0 ? null : "deal-" + random.nextInt(number("keys", 20)), "{\"b\": 1.50, \"n\": " + n + ", \"a\":[1,2]}");
    say("wrote " + n);
  }

  // ---- jEAP ----

  private int jeapPage() throws Exception {
    List<Deferred> page = new ArrayList<>();
    try (PreparedStatement q = db.prepareStatement("SELECT id, topic, key, message, trace_id_high, trace_id, span_id, sampled FROM " + table()
        + " WHERE sent_immediately IS NULL AND sent_scheduled IS NULL AND failed IS NULL AND (send_immediately = false OR"
        + " (send_immediately = true AND CURRENT_TIMESTAMP > schedule_after)) OR resend = true ORDER BY id LIMIT " + number("batch", 5))) {
      ResultSet r = q.executeQuery();
      while (r.next()) {
        page.add(new Deferred(r.getLong(1), r.getString(2), r.getBytes(3), r.getBytes(4), (Long) r.getObject(5), (Long) r.getObject(6),
            (Long) r.getObject(7), (Boolean) r.getObject(8)));
      }
    }
    for (Deferred row : page) {
      try {
        send(row.record(), 30000);
      } catch (ExecutionException e) {
        if (failsMessage(e.getCause())) {
          update("UPDATE " + table() + " SET failed = now(), fail_reason = ?, resend = false WHERE id = ?", reason(e.getCause()), row.id);
          continue;
        }
        break; // transient: the next run tries again
      } catch (TimeoutException e) {
        break;
      }
      update("UPDATE " + table() + " SET sent_scheduled = now(), failed = NULL, resend = false WHERE id = ?", row.id);
      say("sent " + row.id);
    }
    return page.size();
  }

  private record Deferred(long id, String topic, byte[] key, byte[] message, Long high, Long trace, Long span, Boolean sampled) {
    ProducerRecord<byte[], byte[]> record() throws Exception {
      ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, key, message);
      if (trace != null && span != null) {
        header(record, "traceparent", String.format("00-%016x%016x-%016x-%02x", high == null ? 0 : high, trace, span,
            sampled == null || sampled ? 1 : 0));
      }
      return record;
    }
  }

  private static boolean failsMessage(Throwable e) {
    return e instanceof org.apache.kafka.common.errors.InvalidTopicException
        || e instanceof org.apache.kafka.common.errors.TopicAuthorizationException
        || e instanceof org.apache.kafka.common.errors.RecordTooLargeException;
  }

  private static String reason(Throwable e) {
    if (e instanceof org.apache.kafka.common.errors.InvalidTopicException) return "INVALID_TOPIC";
    if (e instanceof org.apache.kafka.common.errors.TopicAuthorizationException) return "UNAUTHORIZED_ON_TOPIC";
    return "MESSAGE_TOO_LARGE";
  }

  /** send_immediately rows are the writer's, who sends after its commit, unless it cannot. */
  private void jeapWrite(int n, Random random) throws Exception {
    boolean immediately = random.nextInt(100) < number("immediate", 50);
    byte[] message = ("message " + n).getBytes(StandardCharsets.UTF_8), key = n % 9 == 0 ? null : ("key-" + random.nextInt(number("keys", 20))).getBytes(StandardCharsets.UTF_8);
    Long trace = n % 4 == 0 ? null : -1L - n, span = n % 4 == 0 ? null : 5L + n;
    db.setAutoCommit(false);
    long id;
    try (PreparedStatement q = db.prepareStatement("INSERT INTO " + table() + " (id, message, key, cluster_name, topic, message_id,"
        + " message_idempotence_id, message_type_name, message_type_version, created, send_immediately, trace_id_high, trace_id, span_id, sampled)"
        + " VALUES (nextval('deferred_message_sequence'), ?, ?, ?, ?, ?, ?, 'Demo', '1', now(), ?, ?, ?, ?, ?) RETURNING id")) {
      bind(q, message, key, n % 2 == 0 ? null : "unknown", options.get("topic"), "m-" + n, "i-" + n, immediately, n % 8 == 1 ? 3L : 0L, trace, span,
          n % 6 == 0 ? Boolean.FALSE : null);
      ResultSet r = q.executeQuery();
      r.next();
      id = r.getLong(1);
    }
    if (immediately) {
      update("UPDATE " + table() + " SET schedule_after = now() + make_interval(secs => ?) WHERE id = ?", number("after", 5), id);
    }
    db.commit();
    db.setAutoCommit(true);
    say("wrote " + id);
    if (immediately && random.nextInt(100) < number("hot", 80)) {
      send(new Deferred(id, options.get("topic"), key, message, n % 8 == 1 ? 3L : 0L, trace, span, n % 6 == 0 ? Boolean.FALSE : null).record(), 30000);
      update("UPDATE " + table() + " SET sent_immediately = now() WHERE id = ?", id);
      say("sent " + id);
    }
  }

  // ---- what they share ----

  private interface Page { int run() throws Exception; }

  private interface Write { void run(int n, Random random) throws Exception; }

  /** As @Scheduled and @SchedulerLock do it: each tick takes the lock, and gives it back. */
  private void locked(String name, String atMost, Page page) throws Exception {
    SingleConnectionDataSource source = new SingleConnectionDataSource(connect(), true);
    LockProvider locks = new JdbcTemplateLockProvider(JdbcTemplateLockProvider.Configuration.builder()
        .withJdbcTemplate(new JdbcTemplate(source)).usingDbTime().build());
    forEver(() -> {
      Optional<SimpleLock> lock = locks.lock(new LockConfiguration(Instant.now(), options.getOrDefault("lock", name),
          Duration.parse(options.getOrDefault("at_most", atMost)), Duration.ZERO));
      if (lock.isEmpty()) {
        say("lock is held");
        return 0;
      }
      say("lock taken");
      try {
        return page.run();
      } finally {
        if (!options.containsKey("keep")) {
          lock.get().unlock();
        }
      }
    });
  }

  private void forEver(Page page) throws Exception {
    while (true) {
      page.run();
      Thread.sleep(number("interval", 500));
    }
  }

  private void write(Write write) throws Exception {
    Random random = new Random(number("seed", 1));
    int from = number("from", 0);
    for (int n = from; n < from + number("rows", 100); n++) {
      write.run(n, random);
      Thread.sleep(number("pause", 1));
    }
    say("done");
  }

  private Connection connect() throws SQLException {
    Properties p = new Properties();
    p.setProperty("user", options.get("user"));
    p.setProperty("password", options.getOrDefault("password", ""));
    return DriverManager.getConnection(options.get("jdbc"), p);
  }

  /** acks=all and idempotence, the defaults of the Java client since 3.0 and of all three. */
  private RecordMetadata send(ProducerRecord<byte[], byte[]> record, long timeout) throws Exception {
    if (producer == null) {
      Properties p = new Properties();
      p.setProperty("bootstrap.servers", options.get("brokers"));
      p.setProperty("acks", "all");
      p.setProperty("max.block.ms", Long.toString(timeout));
      producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }
    return producer.send(record).get(timeout, TimeUnit.MILLISECONDS);
  }

  private static void header(ProducerRecord<byte[], byte[]> record, String name, String value) throws Exception {
    if (value != null) {
      record.headers().add(name, value.getBytes(StandardCharsets.UTF_8));
    }
  }

  private int update(String sql, Object... values) throws SQLException {
    try (PreparedStatement q = db.prepareStatement(sql)) {
      bind(q, values);
      return q.executeUpdate();
    }
  }

  private static void bind(PreparedStatement q, Object... values) throws SQLException {
    for (int i = 0; i < values.length; i++) {
      q.setObject(i + 1, values[i]);
    }
  }

  private String table() { return options.get("table"); }

  private int number(String name, int otherwise) { return Integer.parseInt(options.getOrDefault(name, Integer.toString(otherwise))); }

  private static synchronized void say(String line) { System.out.println(line); }
}
