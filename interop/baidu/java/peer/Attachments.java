package peer;

import com.baidu.jprotobuf.pbrpc.AuthenticationDataHandler;
import com.baidu.jprotobuf.pbrpc.ClientAttachmentHandler;
import com.baidu.jprotobuf.pbrpc.LogIDGenerator;
import com.baidu.jprotobuf.pbrpc.ServerAttachmentHandler;
import java.nio.charset.StandardCharsets;

/** What travels beside messages. */
public final class Attachments {
    /** Of the next calls of this thread. */
    static final ThreadLocal<byte[]> SENT = new ThreadLocal<>();
    /** Of the last call; calls wait for their response on the thread that made them. */
    static volatile byte[] received;

    private Attachments() {}

    static byte[] turned(byte[] bytes) {
        byte[] turned = new byte[bytes.length];
        for (int at = 0; at < bytes.length; at++) {
            turned[at] = bytes[bytes.length - 1 - at];
        }
        return turned;
    }

    public static final class OfClient implements ClientAttachmentHandler {
        @Override
        public byte[] handleRequest(String service, String method, Object... arguments) {
            return SENT.get();
        }

        @Override
        public void handleResponse(byte[] attachment, String service, String method, Object... arguments) {
            received = attachment;
        }
    }

    public static final class OfServer implements ServerAttachmentHandler {
        @Override
        public byte[] handleAttachement(byte[] attachment, String service, String method, Object... arguments) {
            return attachment == null ? null : turned(attachment);
        }
    }

    public static final class Credentials implements AuthenticationDataHandler {
        @Override
        public byte[] create(String service, String method, Object... arguments) {
            return "s3cret".getBytes(StandardCharsets.UTF_8);
        }
    }

    public static final class LogIds implements LogIDGenerator {
        @Override
        public long generate(String service, String method, Object... arguments) {
            return 77;
        }
    }
}
