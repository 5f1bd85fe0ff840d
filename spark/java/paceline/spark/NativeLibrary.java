package paceline.spark;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.EnumSet;
import java.util.Locale;

/** The native library of the jar, loaded once by a process. */
final class NativeLibrary {
    private static final String NAME = "libpaceline-jni";
    private static final String RESOURCE = NAME + ".so";
    private static final long END_MS = 4_000;

    private static boolean loaded;
    private static String failure;

    private NativeLibrary() {}

    /** Load the library from a file in the JVM's folder of temporary files. */
    static void load() {
        load(Path.of(System.getProperty("java.io.tmpdir")));
    }

    /**
     * Load the library from a file in that folder, or do nothing if it is loaded. Failure is for good: later calls fail
     * with the same message.
     *
     * @throws IllegalStateException naming the cause
     */
    static synchronized void load(Path folder) {
        if (loaded) {
            return;
        }
        if (failure == null) {
            try {
                loadResource("native/" + platform() + "/", folder);
                Runtime.getRuntime().addShutdownHook(new Thread(NativeLibrary::endCalls, "paceline-end"));
                loaded = true;
                return;
            } catch (IOException | RuntimeException | LinkageError e) {
                failure = "Paceline's native library cannot be loaded: " + e;
            }
        }
        throw new IllegalStateException(failure);
    }

    /**
     * A JVM that exits runs C's exit handlers while threads of native code still compute, and those of oneDNN free code
     * that they execute. A worker that cannot leave in time is left to that.
     */
    private static void endCalls() {
        long end = System.nanoTime() + END_MS * 1_000_000;
        while (Native.endCalls() > 0 && System.nanoTime() < end) {
            try {
                Thread.sleep(20);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private static String platform() {
        String machine = System.getProperty("os.arch");
        return System.getProperty("os.name").toLowerCase(Locale.ROOT) + "-"
                + (machine.equals("amd64") ? "x86_64" : machine);
    }

    /**
     * Through a file in a folder of its own, which only this user can read or write, and which is removed at once. The
     * file's name has the hash: maps of the process and reports of crashes say which build the library is.
     */
    private static void loadResource(String resources, Path folder) throws IOException {
        String expected = new String(read(resources + RESOURCE + ".sha256"), StandardCharsets.US_ASCII).split(" ")[0];
        byte[] library = read(resources + RESOURCE);
        Path directory = Files.createTempDirectory(folder, "paceline-",
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        Path file = directory.resolve(NAME + "-" + expected + ".so");
        try {
            try (var out = Files.newByteChannel(file,
                    EnumSet.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE),
                    PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")))) {
                var bytes = java.nio.ByteBuffer.wrap(library);
                while (bytes.hasRemaining()) {
                    out.write(bytes);
                }
            }
            if (!sha256(Files.readAllBytes(file)).equals(expected)) {
                throw new IOException(file + " is not the file that was built: its SHA-256 differs");
            }
            System.load(file.toString());
        } finally {
            Files.deleteIfExists(file);
            Files.deleteIfExists(directory);
        }
    }

    private static byte[] read(String resource) throws IOException {
        try (InputStream in = NativeLibrary.class.getClassLoader().getResourceAsStream(resource)) {
            if (in == null) {
                throw new IOException("the jar has no " + resource);
            }
            return in.readAllBytes();
        }
    }

    private static String sha256(byte[] bytes) {
        try {
            var text = new StringBuilder();
            for (byte b : MessageDigest.getInstance("SHA-256").digest(bytes)) {
                text.append(String.format(Locale.ROOT, "%02x", b));
            }
            return text.toString();
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
