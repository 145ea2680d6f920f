import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one JVM, whose start costs more than most of them.
 *
 * A call is read from standard input: how many words there are, then each with its length before it; the first is the tool's
 * class. Its answer goes to standard output: the exit code, then what the tool printed on either stream, each with its length.
 * The end of the input ends the program. What a tool logs counts as printed.
 */
public class Workshop {
    /** Thrown where a tool would end the JVM. Some catch it as any other error, and end once more. */
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static final ByteArrayOutputStream PRINTED = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERRORS = new ByteArrayOutputStream();
    private static DataOutputStream answers;
    private static boolean isAnswered;

    public static void main(String[] unused) throws Exception {
        DataInputStream calls = new DataInputStream(new BufferedInputStream(System.in));
        answers = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        Exit.Procedure end = (code, message) -> {
            answer(code);
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        while (true) {
            try {
                run(readWords(calls));
            } catch (EOFException closed) {
                Runtime.getRuntime().halt(0);
            }
        }
    }

    private static String[] readWords(DataInputStream calls) throws IOException {
        String[] words = new String[calls.readInt()];
        for (int i = 0; i < words.length; i++) {
            byte[] word = new byte[calls.readInt()];
            calls.readFully(word);
            words[i] = new String(word, StandardCharsets.UTF_8);
        }
        return words;
    }

    private static void run(String[] words) throws ReflectiveOperationException {
        isAnswered = false;
        PRINTED.reset();
        ERRORS.reset();
        System.setOut(new PrintStream(PRINTED, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERRORS, true, StandardCharsets.UTF_8));
        Object arguments = Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
            answer(0);
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace();
            answer(1);
        }
    }

    /** Of a tool that ends more than once, the first end counts. */
    private static void answer(int code) {
        if (isAnswered) {
            return;
        }
        isAnswered = true;
        try {
            answers.writeInt(code);
            for (ByteArrayOutputStream stream : Arrays.asList(PRINTED, ERRORS)) {
                answers.writeInt(stream.size());
                stream.writeTo(answers);
            }
            answers.flush();
        } catch (IOException closed) {
            Runtime.getRuntime().halt(1);
        }
    }
}
