//! The `.proto` files that every schema may import without a copy.

/// Name of the file with this project's options of methods.
#[cfg(feature = "codegen")]
pub(crate) const OPTIONS_FILE: &str = IMPORTS[3].0;

/// Names and contents of the files that can be imported without a copy.
pub const IMPORTS: [(&str, &str); 4] = [
    ("google/api/annotations.proto", include_str!("../proto/google/api/annotations.proto")),
    ("google/api/http.proto", include_str!("../proto/google/api/http.proto")),
    ("google/api/httpbody.proto", include_str!("../proto/google/api/httpbody.proto")),
    ("switchboard/options.proto", include_str!("../proto/switchboard/options.proto")),
];
