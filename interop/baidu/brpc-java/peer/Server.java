package peer;

import com.baidu.brpc.RpcContext;
import com.baidu.brpc.interceptor.AbstractInterceptor;
import com.baidu.brpc.interceptor.InterceptorChain;
import com.baidu.brpc.protocol.Request;
import com.baidu.brpc.protocol.Response;
import com.baidu.brpc.server.RpcServer;
import com.baidu.brpc.server.RpcServerOptions;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.util.List;
import java.util.Map;

/** Serves every protocol on a free port until it is ended; prints {@code listening on 127.0.0.1:PORT}. */
public final class Server {
    /** The call on this thread; handlers do not get it as an argument. */
    private static final ThreadLocal<Request> CALL = new ThreadLocal<>();

    private Server() {}

    public static final class ByName implements Echo.ByName {
        @Override
        public EchoReply echo(EchoRequest request) {
            return answer(request, 0);
        }
    }

    public static final class ByIndex implements Echo.ByIndex {
        @Override
        public EchoReply echo(EchoRequest request) {
            // In hulu the library hands out the message, a tag and a length and the text, with the attachment.
            return answer(request, 2 + request.text.length());
        }
    }

    /** The attachment is behind so many other bytes. */
    private static EchoReply answer(EchoRequest request, int before) {
        if ("fail".equals(request.text)) {
            throw new IllegalStateException("no such thing");
        }
        RpcContext context = RpcContext.getContext();
        ByteBuf attachment = context.getRequestBinaryAttachment();
        if (attachment != null) {
            context.setResponseBinaryAttachment(Unpooled.wrappedBuffer(turned(attachment.skipBytes(before))));
        }
        Map<String, Object> pairs = context.getRequestKvAttachment();
        EchoReply reply = new EchoReply();
        reply.text = "hello " + (request.text == null ? "" : request.text);
        reply.logId = CALL.get().getLogId();
        reply.caller = CALL.get().getAuth() + ", " + (pairs == null ? null : pairs.get("x-who"));
        return reply;
    }

    static byte[] turned(ByteBuf buffer) {
        byte[] bytes = ByteBufUtil.getBytes(buffer);
        byte[] turned = new byte[bytes.length];
        for (int at = 0; at < bytes.length; at++) {
            turned[at] = bytes[bytes.length - 1 - at];
        }
        return turned;
    }

    private static final class Noted extends AbstractInterceptor {
        @Override
        public void aroundProcess(Request request, Response response, InterceptorChain chain) throws Exception {
            CALL.set(request);
            chain.intercept(request, response);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Echo.prepare();
        RpcServerOptions options = new RpcServerOptions();
        // Seconds until a connection without calls is closed.
        options.setKeepAliveTime(60);
        RpcServer server = new RpcServer("127.0.0.1", 0, options, List.of(new Noted()));
        server.registerService(new ByName());
        server.registerService(new ByIndex());
        server.start();
        System.out.println("listening on 127.0.0.1:" + server.getPort());
        System.out.flush();
        // The parent process ends this one.
        Thread.currentThread().join();
    }
}
