package peer;

import com.baidu.bjf.remoting.protobuf.FieldType;
import com.baidu.bjf.remoting.protobuf.annotation.Protobuf;

/** As in proto/echo.proto. */
public class EchoReply {
    @Protobuf(fieldType = FieldType.STRING, order = 1)
    public String text;

    @Protobuf(fieldType = FieldType.INT64, order = 2)
    public Long logId;

    @Protobuf(fieldType = FieldType.STRING, order = 3)
    public String caller;
}
