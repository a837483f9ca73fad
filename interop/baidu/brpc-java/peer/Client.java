package peer;

import com.baidu.brpc.RpcContext;
import com.baidu.brpc.client.BrpcProxy;
import com.baidu.brpc.client.RpcClient;
import com.baidu.brpc.client.RpcClientOptions;
import com.baidu.brpc.interceptor.AbstractInterceptor;
import com.baidu.brpc.interceptor.InterceptorChain;
import com.baidu.brpc.protocol.Options.CompressType;
import com.baidu.brpc.protocol.Options.ProtocolType;
import com.baidu.brpc.protocol.Request;
import com.baidu.brpc.protocol.Response;
import io.netty.buffer.ByteBuf;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;

/**
 * Calls a server, {@code Client PORT PROTOCOL}, in {@code baidu_std}, {@code hulu} or {@code sofa}. Prints a line for each
 * case and exits with 1 if one has failed.
 */
public final class Client {
    private interface Case {
        void run() throws Exception;
    }

    private static final List<RpcClient> CLIENTS = new ArrayList<>();
    private static int port;
    private static String protocol;
    private static int failed;

    private Client() {}

    public static void main(String[] arguments) {
        Echo.prepare();
        port = Integer.parseInt(arguments[0]);
        protocol = arguments[1];
        Function<EchoRequest, EchoReply> echo = echo(client(CompressType.COMPRESS_TYPE_NONE, 20_000));
        check("a call", () -> says(echo.apply(request("abc")).text, "hello abc"));
        check("large messages", () -> {
            String large = "x".repeat(3_000_000);
            says(echo.apply(request(large)).text, "hello " + large);
        });
        for (CompressType type : List.of(CompressType.COMPRESS_TYPE_SNAPPY, CompressType.COMPRESS_TYPE_GZIP,
                CompressType.COMPRESS_TYPE_ZLIB)) {
            Function<EchoRequest, EchoReply> compressing = echo(client(type, 20_000));
            check(type.name(), () -> {
                String large = "y".repeat(300_000);
                says(compressing.apply(request(large)).text, "hello " + large);
                says(compressing.apply(request("small")).text, "hello small");
            });
        }
        // sofa has neither.
        if (!protocol.equals("sofa")) {
            check("attachments", () -> attachments(echo));
            check("log id and pairs", () -> {
                RpcContext.getContext().setLogId(77);
                RpcContext.getContext().setRequestKvAttachment("x-who", "bob");
                EchoReply reply = echo.apply(request("abc"));
                says(reply.logId, 77L);
                says(reply.caller, protocol.equals("hulu") ? "absent, bob" : "ali, bob");
            });
        }
        check("errors", () -> {
            Case nope;
            Case missing;
            RpcClient client = client(CompressType.COMPRESS_TYPE_NONE, 20_000);
            if (protocol.equals("hulu")) {
                Echo.UnknownByIndex unknown = BrpcProxy.getProxy(client, Echo.UnknownByIndex.class);
                nope = () -> unknown.nope(request("abc"));
                missing = () -> unknown.missing(request("abc"));
                fails(nope, "interop.baidu.Echo has 3");
            } else {
                Echo.UnknownByName unknown = BrpcProxy.getProxy(client, Echo.UnknownByName.class);
                nope = () -> unknown.nope(request("abc"));
                missing = () -> unknown.missing(request("abc"));
                fails(nope, "interop.baidu.Echo has Echo");
            }
            fails(missing, "unknown service");
            fails(() -> echo.apply(request("fail")), "no such thing");
            says(echo.apply(request("after")).text, "hello after");
        });
        check("a call that takes too long", () -> {
            Function<EchoRequest, EchoReply> hasty = echo(client(CompressType.COMPRESS_TYPE_NONE, 200));
            fails(() -> hasty.apply(request("hang")), "timeout");
            says(hasty.apply(request("after")).text, "hello after");
        });
        check("many callers", () -> many(echo));
        CLIENTS.forEach(RpcClient::stop);
        System.out.println(failed == 0 ? "all passed" : failed + " failed");
        System.out.flush();
        // Threads of the library's pools go on.
        System.exit(failed == 0 ? 0 : 1);
    }

    private static RpcClient client(CompressType compression, int timeoutMillis) {
        RpcClientOptions options = new RpcClientOptions();
        options.setProtocolType(switch (protocol) {
            case "hulu" -> ProtocolType.PROTOCOL_HULU_PBRPC_VALUE;
            case "sofa" -> ProtocolType.PROTOCOL_SOFA_PBRPC_VALUE;
            default -> ProtocolType.PROTOCOL_BAIDU_STD_VALUE;
        });
        options.setCompressType(compression);
        options.setReadTimeoutMillis(timeoutMillis);
        options.setWriteTimeoutMillis(timeoutMillis);
        options.setMaxTryTimes(1);
        options.setMinIdleConnections(1);
        RpcClient client = new RpcClient("list://127.0.0.1:" + port, options, List.of(new Credentials()));
        CLIENTS.add(client);
        return client;
    }

    private static final class Credentials extends AbstractInterceptor {
        @Override
        public void aroundProcess(Request request, Response response, InterceptorChain chain) throws Exception {
            request.setAuth("s3cret");
            chain.intercept(request, response);
        }
    }

    private static Function<EchoRequest, EchoReply> echo(RpcClient client) {
        if (protocol.equals("hulu")) {
            Echo.ByIndex echo = BrpcProxy.getProxy(client, Echo.ByIndex.class);
            return echo::echo;
        }
        Echo.ByName echo = BrpcProxy.getProxy(client, Echo.ByName.class);
        return echo::echo;
    }

    private static void attachments(Function<EchoRequest, EchoReply> echo) {
        for (int size : new int[] {1, 1000, 2_000_000}) {
            byte[] sent = new byte[size];
            for (int at = 0; at < size; at++) {
                sent[at] = (byte) (at * 7);
            }
            RpcContext.getContext().setRequestBinaryAttachment(sent);
            says(echo.apply(request("abc")).text, "hello abc");
            ByteBuf came = RpcContext.getContext().getResponseBinaryAttachment();
            // In hulu the library hands out the message with it, "hello abc" and "absent".
            came.skipBytes(protocol.equals("hulu") ? 19 : 0);
            if (!Arrays.equals(Server.turned(came), sent)) {
                throw new AssertionError("an attachment of " + size + " bytes came back as " + came);
            }
            came.release();
            RpcContext.getContext().reset();
        }
    }

    private static void many(Function<EchoRequest, EchoReply> echo) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(8);
        AtomicInteger next = new AtomicInteger();
        List<Future<?>> callers = new ArrayList<>();
        for (int caller = 0; caller < 8; caller++) {
            callers.add(threads.submit(() -> {
                for (int call = 0; call < 500; call++) {
                    String text = "call " + next.getAndIncrement();
                    says(echo.apply(request(text)).text, "hello " + text);
                }
                return null;
            }));
        }
        for (Future<?> caller : callers) {
            caller.get();
        }
        threads.shutdown();
    }

    private static EchoRequest request(String text) {
        return new EchoRequest(text);
    }

    private static void says(Object came, Object wanted) {
        if (!wanted.equals(came)) {
            String text = String.valueOf(came);
            throw new AssertionError(text.length() + " characters: " + text.substring(0, Math.min(100, text.length())));
        }
    }

    private static void fails(Case call, String part) throws Exception {
        try {
            call.run();
        } catch (RuntimeException failure) {
            StringBuilder all = new StringBuilder();
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                all.append(cause.getMessage()).append('\n');
            }
            if (all.indexOf(part) < 0) {
                throw new AssertionError("not " + part + ": " + all, failure);
            }
            return;
        }
        throw new AssertionError("it did not fail: " + part);
    }

    private static void check(String name, Case work) {
        try {
            work.run();
            System.out.println(name + ": passed");
        } catch (Throwable thrown) {
            failed++;
            System.out.println(name + ": FAILED");
            thrown.printStackTrace(System.out);
        }
    }
}
