package paceline.spark;

/** A call that failed, with the cause and the remedy in words. */
public final class PacelineException extends RuntimeException {
    private static final long serialVersionUID = 1;

    PacelineException(String message) {
        super(message);
    }

    PacelineException(String message, Throwable cause) {
        super(message, cause);
    }
}
