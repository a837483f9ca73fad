package peer;

import com.baidu.jprotobuf.pbrpc.ProtobufRPCService;
import com.baidu.jprotobuf.pbrpc.ServerAuthenticationDataHandler;
import com.baidu.jprotobuf.pbrpc.transport.RpcServer;
import com.baidu.jprotobuf.pbrpc.transport.RpcServerOptions;
import com.baidu.jprotobuf.pbrpc.utils.LogIdThreadLocalHolder;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;

/** Serves on a free port until it is ended; prints {@code listening on 127.0.0.1:PORT}. */
public final class Server {
    private Server() {}

    public static final class Full {
        @ProtobufRPCService(serviceName = "interop.baidu.Echo", methodName = "Echo",
                attachmentHandler = Attachments.OfServer.class, authenticationDataHandler = Known.class)
        public EchoReply echo(EchoRequest request) {
            return answer(request);
        }
    }

    public static final class Short {
        @ProtobufRPCService(serviceName = "Echo", methodName = "Echo",
                attachmentHandler = Attachments.OfServer.class)
        public EchoReply echo(EchoRequest request) {
            return answer(request);
        }
    }

    /** Notes the credentials of the last call that had some. */
    public static final class Known implements ServerAuthenticationDataHandler {
        static volatile String last = "absent";

        @Override
        public void handle(byte[] data, String service, String method, Object... arguments) {
            if (data != null && data.length > 0) {
                last = new String(data, StandardCharsets.UTF_8);
            }
        }
    }

    private static EchoReply answer(EchoRequest request) {
        if ("fail".equals(request.text)) {
            throw new IllegalStateException("no such thing");
        }
        EchoReply reply = new EchoReply();
        reply.text = "hello " + (request.text == null ? "" : request.text);
        reply.logId = LogIdThreadLocalHolder.getLogId();
        reply.caller = Known.last;
        return reply;
    }

    public static void main(String[] arguments) throws Exception {
        RpcServer server = new RpcServer(new RpcServerOptions());
        server.registerService(new Full());
        server.registerService(new Short());
        int port = freePort();
        server.startSync(new InetSocketAddress("127.0.0.1", port));
        System.out.println("listening on 127.0.0.1:" + port);
        System.out.flush();
        // The parent process ends this one.
        Thread.currentThread().join();
    }

    /** A port chosen by the system: the library accepts port 0 and does not return the chosen one. */
    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }
}
