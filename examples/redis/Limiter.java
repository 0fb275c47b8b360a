/*
 * A limit that a fleet shares, from Java without weir's library.
 *
 *     java -cp "jars/*" Limiter.java             on a server with the module
 *     java -cp "jars/*" Limiter.java weir.lua    on any server, by the script that `weir lua` prints
 *
 * REDIS_URL says where the server is. Needs Java 17, Jedis 4 or 5 and what that depends on. The tests
 * of this repository do not run this file.
 */
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.List;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisNoScriptException;

public class Limiter {
    static final String LIMIT = "token-bucket 3/h";
    /** weir lua --args "token-bucket 3/h" */
    static final List<String> NUMBERS = List.of("0 0 -1 0 1 1 0 3 3600000000 3 0 0 0".split(" "));
    static final ProtocolCommand TAKE = () -> "WEIR.TAKE".getBytes(StandardCharsets.UTF_8);

    record Decision(boolean allowed, long remaining, long retryAfterUs) {}

    final JedisPooled jedis;
    final String script;
    final String sha;

    Limiter(JedisPooled jedis, String script) throws GeneralSecurityException {
        this.jedis = jedis;
        this.script = script;
        this.sha = script == null ? null : sha1(script);
    }

    private static String sha1(String text) throws GeneralSecurityException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(bytes));
    }

    /** The decision; null while no server answers. A take is never sent again: it may have been charged. */
    Decision take(String key) {
        List<?> reply;
        try {
            reply = (List<?>) (script == null ? jedis.sendCommand(TAKE, key, LIMIT) : evaluate(key));
        } catch (JedisConnectionException noAnswer) {
            return null;
        }
        return new Decision((Long) reply.get(0) == 1, (Long) reply.get(2), (Long) reply.get(3));
    }

    private Object evaluate(String key) {
        try {
            return jedis.evalsha(sha, List.of(key), NUMBERS);
        } catch (JedisNoScriptException unknown) {
            return jedis.eval(script, List.of(key), NUMBERS);
        }
    }

    public static void main(String[] args) throws Exception {
        String url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379");
        String script = args.length > 0 ? Files.readString(Path.of(args[0])) : null;
        try (JedisPooled jedis = new JedisPooled(java.net.URI.create(url), 50)) {
            Limiter limiter = new Limiter(jedis, script);
            for (int number = 1; number <= 4; number++) {
                Decision decision = limiter.take("example:java");
                if (decision == null)
                    System.out.printf("request %d: allowed, no server answers%n", number);
                else if (decision.allowed())
                    System.out.printf("request %d: allowed, %d left%n", number, decision.remaining());
                else
                    System.out.printf("request %d: denied, retry in %d min%n", number,
                        (decision.retryAfterUs() + 59_999_999) / 60_000_000);
            }
        }
    }
}
