package paceline.spark;

import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;

/** The program of a process that has an engine for its parent: it serves calls until its input ends. */
final class EngineChild {
    final LocalEngine engine = new LocalEngine();
    Engine.Worker worker; // the newest

    private EngineChild() {}

    private Object serve(EngineProcess.Call call) {
        try {
            return call.run(this);
        } catch (Exception failed) {
            return new EngineProcess.Failure(String.valueOf(failed.getMessage()));
        }
    }

    /** Standard output carries the results, so that text which a class prints goes to standard error. */
    public static void main(String[] args) throws IOException, ClassNotFoundException {
        ObjectOutputStream results = new ObjectOutputStream(new FileOutputStream(FileDescriptor.out));
        System.setOut(System.err);
        results.flush();
        ObjectInputStream calls = new ObjectInputStream(System.in);
        EngineChild child;
        try {
            child = new EngineChild();
        } catch (RuntimeException unloaded) { // the result of the first call
            results.writeObject(new EngineProcess.Failure(unloaded.getMessage()));
            results.close();
            return;
        }
        try {
            for (;;) {
                results.writeObject(child.serve((EngineProcess.Call) calls.readObject()));
                results.reset();
                results.flush();
            }
        } catch (EOFException over) {
            child.engine.printLog();
            System.exit(0); // a worker leaves by the hook of NativeLibrary
        }
    }
}
