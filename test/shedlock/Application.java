import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.TimeZone;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.postgresql.ds.PGSimpleDataSource;
import org.springframework.jdbc.core.JdbcTemplate;

// An application that uses the real ShedLock. Arguments: JDBC URL, user, clock
// ("database" or "own"). It obeys lines of standard input and prints one for each.
public class Application {
    public static void main(String[] args) throws Exception {
        PGSimpleDataSource source = new PGSimpleDataSource();
        source.setUrl(args[0]);
        source.setUser(args[1]);
        JdbcTemplate jdbc = new JdbcTemplate(source);
        JdbcTemplateLockProvider.Configuration.Builder builder =
                JdbcTemplateLockProvider.Configuration.builder().withJdbcTemplate(jdbc);
        builder = args[2].equals("database") ? builder.usingDbTime() : builder.withTimeZone(TimeZone.getTimeZone("UTC"));
        JdbcTemplateLockProvider provider = new JdbcTemplateLockProvider(builder.build());

        System.out.println("ready");
        SimpleLock lock = null;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "try": // try NAME MILLISECONDS
                    Optional<SimpleLock> got = take(provider, words[1], words[2]);
                    lock = got.orElse(lock);
                    System.out.println(got.isPresent() ? "locked" : "refused");
                    break;
                case "wait": // wait NAME MILLISECONDS
                    lock = await(provider, words[1], words[2]);
                    System.out.println("locked");
                    break;
                case "extend": // extend MILLISECONDS
                    Optional<SimpleLock> more = lock.extend(millis(words[1]), Duration.ZERO);
                    lock = more.orElse(null);
                    System.out.println(more.isPresent() ? "extended" : "lost");
                    break;
                case "unlock":
                    lock.unlock();
                    System.out.println("unlocked");
                    break;
                case "work": // work NAME TIMES: so often under the lock
                    for (int i = 0; i < Integer.parseInt(words[2]); i++) {
                        SimpleLock held = await(provider, words[1], "5000");
                        jdbc.update("INSERT INTO work (who, what) VALUES ('application', 'begin')");
                        Thread.sleep(3);
                        jdbc.update("INSERT INTO work (who, what) VALUES ('application', 'end')");
                        held.unlock();
                        Thread.sleep(3);
                    }
                    System.out.println("worked");
                    break;
                default:
                    System.out.println("unknown command " + line);
            }
        }
    }

    static Duration millis(String text) {
        return Duration.ofMillis(Long.parseLong(text));
    }

    static Optional<SimpleLock> take(JdbcTemplateLockProvider provider, String name, String millis) {
        return provider.lock(new LockConfiguration(Instant.now(), name, millis(millis), Duration.ZERO));
    }

    static SimpleLock await(JdbcTemplateLockProvider provider, String name, String millis) throws Exception {
        for (;;) {
            Optional<SimpleLock> got = take(provider, name, millis);
            if (got.isPresent()) {
                return got.get();
            }
            Thread.sleep(20);
        }
    }
}
