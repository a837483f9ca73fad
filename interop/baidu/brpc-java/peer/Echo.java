package peer;

import com.baidu.bjf.remoting.protobuf.utils.JDKCompilerHelper;
import com.baidu.bjf.remoting.protobuf.utils.compiler.JdkCompiler;
import com.baidu.brpc.protocol.BrpcMeta;

/** The service of proto/echo.proto, as the protocols name it. */
public final class Echo {
    private Echo() {}

    /** Lets codecs be made by compilers of today: they no longer read the Java version that the library requires. */
    static void prepare() {
        JDKCompilerHelper.setCompiler(new JdkCompiler(Echo.class.getClassLoader(), "8"));
    }

    /** baidu_std and sofa. */
    public interface ByName {
        @BrpcMeta(serviceName = "interop.baidu.Echo", methodName = "Echo")
        EchoReply echo(EchoRequest request);
    }

    /** hulu, which has the place of a method in its service for a name. */
    public interface ByIndex {
        @BrpcMeta(serviceName = "Echo", methodName = "0")
        EchoReply echo(EchoRequest request);
    }

    /** What a server does not have. */
    public interface UnknownByName {
        @BrpcMeta(serviceName = "interop.baidu.Echo", methodName = "Nope")
        EchoReply nope(EchoRequest request);

        @BrpcMeta(serviceName = "interop.baidu.Missing", methodName = "Echo")
        EchoReply missing(EchoRequest request);
    }

    /** The same for hulu. */
    public interface UnknownByIndex {
        @BrpcMeta(serviceName = "Echo", methodName = "17")
        EchoReply nope(EchoRequest request);

        @BrpcMeta(serviceName = "Missing", methodName = "0")
        EchoReply missing(EchoRequest request);
    }
}
