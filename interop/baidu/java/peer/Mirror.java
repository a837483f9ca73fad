package peer;

import com.baidu.jprotobuf.pbrpc.ProtobufRPC;
import com.baidu.jprotobuf.pbrpc.client.ProtobufRpcProxy;
import com.baidu.jprotobuf.pbrpc.transport.RpcClient;

/** Calls {@code test.Mirror/Show}, which answers with what it gets, some thousand times: {@code Mirror PORT}. */
public final class Mirror {
    interface Service {
        @ProtobufRPC(serviceName = "test.Mirror", methodName = "Show", onceTalkTimeout = 20000)
        EchoRequest show(EchoRequest request);
    }

    private static final int CALLS = 3000;

    private Mirror() {}

    public static void main(String[] arguments) {
        RpcClient client = new RpcClient();
        ProtobufRpcProxy<Service> proxy = new ProtobufRpcProxy<>(client, Service.class);
        proxy.setHost("127.0.0.1");
        proxy.setPort(Integer.parseInt(arguments[0]));
        int failed = 0;
        try {
            Service service = proxy.proxy();
            for (int call = 0; call < CALLS; call++) {
                String text = "call " + call;
                if (!text.equals(service.show(new EchoRequest(text)).text)) {
                    throw new AssertionError(text);
                }
            }
            System.out.println(CALLS + " calls");
        } catch (Throwable thrown) {
            thrown.printStackTrace();
            failed = 1;
        }
        client.stop();
        System.out.flush();
        // Threads of the library's pools go on.
        System.exit(failed);
    }
}
