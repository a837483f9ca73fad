package peer;

import com.baidu.bjf.remoting.protobuf.FieldType;
import com.baidu.bjf.remoting.protobuf.annotation.Protobuf;

/** As in proto/echo.proto. */
public class EchoRequest {
    @Protobuf(fieldType = FieldType.STRING, order = 1)
    public String text;

    public EchoRequest() {}

    EchoRequest(String text) {
        this.text = text;
    }
}
