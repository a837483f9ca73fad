package peer;

import com.baidu.jprotobuf.pbrpc.CompressType;
import com.baidu.jprotobuf.pbrpc.ErrorDataException;
import com.baidu.jprotobuf.pbrpc.ProtobufRPC;
import com.baidu.jprotobuf.pbrpc.client.ProtobufRpcProxy;
import com.baidu.jprotobuf.pbrpc.transport.RpcClient;
import com.baidu.jprotobuf.pbrpc.transport.RpcClientOptions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

/** Calls a server: {@code Client PORT}. Prints a line for each case and exits with 1 if one has failed. */
public final class Client {
    interface Full {
        @ProtobufRPC(serviceName = "interop.baidu.Echo", methodName = "Echo", onceTalkTimeout = 20000)
        EchoReply echo(EchoRequest request);

        @ProtobufRPC(serviceName = "interop.baidu.Echo", methodName = "Nope", onceTalkTimeout = 20000)
        EchoReply nope(EchoRequest request);

        @ProtobufRPC(serviceName = "interop.baidu.Missing", methodName = "Echo", onceTalkTimeout = 20000)
        EchoReply missing(EchoRequest request);
    }

    interface Short {
        @ProtobufRPC(serviceName = "Echo", methodName = "Echo", onceTalkTimeout = 20000)
        EchoReply echo(EchoRequest request);
    }

    interface Old {
        @ProtobufRPC(serviceName = "echoService", methodName = "echo", onceTalkTimeout = 20000)
        EchoReply echo(EchoRequest request);
    }

    interface Gzip {
        @ProtobufRPC(serviceName = "Echo", methodName = "Echo", onceTalkTimeout = 20000,
                compressType = CompressType.GZIP)
        EchoReply echo(EchoRequest request);
    }

    interface Snappy {
        @ProtobufRPC(serviceName = "Echo", methodName = "Echo", onceTalkTimeout = 20000,
                compressType = CompressType.Snappy)
        EchoReply echo(EchoRequest request);
    }

    interface Beside {
        @ProtobufRPC(serviceName = "Echo", methodName = "Echo", onceTalkTimeout = 20000,
                attachmentHandler = Attachments.OfClient.class, logIDGenerator = Attachments.LogIds.class)
        EchoReply echo(EchoRequest request);
    }

    interface BesideGzip {
        @ProtobufRPC(serviceName = "Echo", methodName = "Echo", onceTalkTimeout = 20000,
                compressType = CompressType.GZIP, attachmentHandler = Attachments.OfClient.class)
        EchoReply echo(EchoRequest request);
    }

    interface Known {
        @ProtobufRPC(serviceName = "Echo", methodName = "Echo", onceTalkTimeout = 20000,
                authenticationDataHandler = Attachments.Credentials.class)
        EchoReply echo(EchoRequest request);
    }

    interface Hasty {
        @ProtobufRPC(serviceName = "Echo", methodName = "Echo", onceTalkTimeout = 200)
        EchoReply echo(EchoRequest request);
    }

    private interface Case {
        void run() throws Exception;
    }

    private static final RpcClientOptions OPTIONS = new RpcClientOptions();
    private static int port;
    private static int failed;

    private Client() {}

    public static void main(String[] arguments) {
        port = Integer.parseInt(arguments[0]);
        OPTIONS.setIncludeRemoteServerInfoOnError(false);
        RpcClient client = new RpcClient(OPTIONS);
        check("full name", () -> says(proxy(client, Full.class).echo(request("abc")).text, "hello abc"));
        check("short name", () -> says(proxy(client, Short.class).echo(request("abc")).text, "hello abc"));
        check("alias", () -> says(proxy(client, Old.class).echo(request("abc")).text, "hello abc"));
        check("empty request and large reply", () -> {
            says(proxy(client, Full.class).echo(request("")).text, "hello ");
            String large = "x".repeat(3_000_000);
            says(proxy(client, Full.class).echo(request(large)).text, "hello " + large);
        });
        check("gzip", () -> {
            String large = "y".repeat(300_000);
            says(proxy(client, Gzip.class).echo(request(large)).text, "hello " + large);
            says(proxy(client, Gzip.class).echo(request("small")).text, "hello small");
        });
        check("snappy", () -> {
            String large = "z".repeat(300_000);
            says(proxy(client, Snappy.class).echo(request(large)).text, "hello " + large);
            says(proxy(client, Snappy.class).echo(request("small")).text, "hello small");
        });
        check("attachments and log id", () -> {
            for (int size : new int[] {1, 1000, 2_000_000}) {
                byte[] sent = new byte[size];
                for (int at = 0; at < size; at++) {
                    sent[at] = (byte) (at * 7);
                }
                attached(sent, () -> {
                    EchoReply reply = proxy(client, Beside.class).echo(request("abc"));
                    says(reply.text, "hello abc");
                    says(reply.logId, 77L);
                });
                attached(sent, () -> says(proxy(client, BesideGzip.class).echo(request("abc")).text, "hello abc"));
            }
        });
        check("credentials", () -> {
            says(proxy(client, Known.class).echo(request("who")).caller, "ali");
        });
        check("errors", () -> {
            Full full = proxy(client, Full.class);
            fails(() -> full.nope(request("abc")), 1002, "interop.baidu.Echo has Echo");
            fails(() -> full.missing(request("abc")), 1001, "unknown service interop.baidu.Missing");
            fails(() -> full.echo(request("fail")), 2001, "no such thing");
            fails(() -> full.echo(request("busy")), 2004, "come back later");
            fails(() -> full.echo(request("own")), -42, "a number of its own");
            says(full.echo(request("after")).text, "hello after");
        });
        check("a call that takes too long", () -> {
            Hasty hasty = proxy(client, Hasty.class);
            fails(() -> hasty.echo(request("hang")), 62, "time out");
            says(hasty.echo(request("after")).text, "hello after");
        });
        check("many callers", () -> many(client));
        client.stop();
        System.out.println(failed == 0 ? "all passed" : failed + " failed");
        System.out.flush();
        // Threads of the library's pools go on.
        System.exit(failed == 0 ? 0 : 1);
    }

    private static void many(RpcClient client) throws Exception {
        Full full = proxy(client, Full.class);
        ExecutorService threads = Executors.newFixedThreadPool(8);
        AtomicInteger next = new AtomicInteger();
        List<Future<?>> callers = new ArrayList<>();
        for (int caller = 0; caller < 8; caller++) {
            callers.add(threads.submit(() -> {
                for (int call = 0; call < 500; call++) {
                    String text = "call " + next.getAndIncrement();
                    says(full.echo(request(text)).text, "hello " + text);
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

    private static <T> T proxy(RpcClient client, Class<T> service) {
        ProtobufRpcProxy<T> proxy = new ProtobufRpcProxy<>(client, service);
        proxy.setHost("127.0.0.1");
        proxy.setPort(port);
        return proxy.proxy();
    }

    /** Runs a call with this attachment, which the server turns round. */
    private static void attached(byte[] sent, Case call) throws Exception {
        Attachments.SENT.set(sent);
        Attachments.received = null;
        try {
            call.run();
        } finally {
            Attachments.SENT.remove();
        }
        if (!Arrays.equals(Attachments.received, Attachments.turned(sent))) {
            int size = Attachments.received == null ? -1 : Attachments.received.length;
            throw new AssertionError("an attachment of " + sent.length + " bytes came back with " + size);
        }
    }

    private static void says(Object got, Object wanted) {
        if (!wanted.equals(got)) {
            String text = String.valueOf(got);
            throw new AssertionError("got " + text.substring(0, Math.min(text.length(), 200)));
        }
    }

    private static void fails(Case call, int code, String text) throws Exception {
        try {
            call.run();
        } catch (Throwable thrown) {
            for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
                if (cause instanceof ErrorDataException error) {
                    if (error.getErrorCode() != code || !String.valueOf(error.getMessage()).contains(text)) {
                        throw new AssertionError(error.getErrorCode() + " " + error.getMessage(), error);
                    }
                    return;
                }
            }
            throw thrown;
        }
        throw new AssertionError("it did not fail with " + code);
    }

    private static void check(String name, Case test) {
        try {
            test.run();
            System.out.println(name + ": passed");
        } catch (Throwable thrown) {
            failed++;
            System.out.println(name + ": FAILED: " + thrown);
            thrown.printStackTrace();
        }
    }
}
