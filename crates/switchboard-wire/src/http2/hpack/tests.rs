//! The examples of RFC 7541, appendix C, and blocks of an encoder of ours.

use super::{Decoder, Encoder, HpackError, Indexing, ListLimits, Listed};
use bytes::BytesMut;

const LIMITS: ListLimits = ListLimits { bytes_max: 16 << 10, fields_max: 100 };

type Fields = Vec<(String, String)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let listed = decoder.decode(block, LIMITS, |field| fields.push((text(field.name), text(field.value))))?;
    assert_eq!(listed, Listed::Complete);
    Ok(fields)
}

/// Decodes hexadecimal text with blanks.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn fields(text: &[(&str, &str)]) -> Fields {
    text.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn representations_of_single_fields() {
    for (block, field, table_bytes) in [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            ("custom-key", "custom-header"),
            55,
        ),
        ("040c 2f73 616d 706c 652f 7061 7468", (":path", "/sample/path"), 0),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", ("password", "secret"), 0),
        ("82", (":method", "GET"), 0),
    ] {
        let mut decoder = Decoder::new(4096);
        assert_eq!(decode(&mut decoder, &hex(block)), Ok(fields(&[field])));
        assert_eq!(decoder.table_bytes(), table_bytes);
    }
    let mut is_secret = false;
    let mut decoder = Decoder::new(4096);
    let block = hex("1008 7061 7373 776f 7264 0673 6563 7265 74");
    decoder.decode(&block, LIMITS, |field| is_secret = field.never_indexed).unwrap();
    assert!(is_secret);
}

#[test]
fn requests_with_and_without_huffman() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let first = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
    let second = [&first[..], &[("cache-control", "no-cache")]].concat();
    let third = [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::new(4096);
        for (block, (wanted, table_bytes)) in
            blocks.iter().zip([(&first[..], 57), (&second[..], 110), (&third[..], 164)])
        {
            assert_eq!(decode(&mut decoder, &hex(block)), Ok(fields(wanted)));
            assert_eq!(decoder.table_bytes(), table_bytes);
        }
    }
}

#[test]
fn responses_evict_from_a_table_of_256_bytes() {
    let huffman = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 \
         8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 \
         dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let date = "Mon, 21 Oct 2013 20:13:21 GMT";
    let later = "Mon, 21 Oct 2013 20:13:22 GMT";
    let (private, location) = (("cache-control", "private"), ("location", "https://www.example.com"));
    let cookie = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    let wanted = [
        fields(&[(":status", "302"), private, ("date", date), location]),
        fields(&[(":status", "307"), private, ("date", date), location]),
        fields(&[
            (":status", "200"),
            private,
            ("date", later),
            location,
            ("content-encoding", "gzip"),
            ("set-cookie", cookie),
        ]),
    ];
    let mut decoder = Decoder::new(256);
    for ((block, wanted), table_bytes) in huffman.iter().zip(wanted).zip([222, 222, 215]) {
        assert_eq!(decode(&mut decoder, &hex(block)), Ok(wanted));
        assert_eq!(decoder.table_bytes(), table_bytes);
    }
}

#[test]
fn invalid_blocks_are_refused() {
    for (block, error) in [
        ("80", HpackError::Index(0)),
        ("be", HpackError::Index(62)),
        ("7f 00", HpackError::Index(63)),
        ("40", HpackError::Truncated),
        ("40 05 61", HpackError::Truncated),
        ("40 01 61", HpackError::Truncated),
        ("82 20", HpackError::SizeUpdate),
        ("3f e2 1f", HpackError::SizeUpdate),
        ("ff ff ff ff ff ff", HpackError::Integer),
        ("00 82 ff ff 00", HpackError::Huffman),
    ] {
        assert_eq!(decode(&mut Decoder::new(4096), &hex(block)), Err(error), "{block}");
    }
}

#[test]
fn a_lowered_size_must_be_acknowledged_by_the_next_block() {
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &hex("4001 6101 62")).unwrap();
    decoder.announce(100);
    assert_eq!(decode(&mut decoder, &hex("82")), Err(HpackError::MissingSizeUpdate));
    decoder.announce(100);
    // 31 and 69: 100.
    assert_eq!(decode(&mut decoder, &hex("3f 45 82")), Ok(fields(&[(":method", "GET")])));
    assert_eq!(decode(&mut decoder, &hex("3f 46 82")), Err(HpackError::SizeUpdate), "over 100");
    // The size may be raised again, and the update need not come.
    decoder.announce(4096);
    assert_eq!(decode(&mut decoder, &hex("be")), Ok(fields(&[("a", "b")])));
    assert_eq!(decode(&mut decoder, &hex("20 82")), Ok(fields(&[(":method", "GET")])));
    assert_eq!(decode(&mut decoder, &hex("be")), Err(HpackError::Index(62)), "the table is empty");
}

#[test]
fn a_list_over_the_limit_still_changes_the_table() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
    let mut block = BytesMut::new();
    for at in 0..6 {
        encoder.field(format!("name-{at}").as_bytes(), b"value", Indexing::Recurring, &mut block);
    }
    let mut seen = 0;
    let limits = ListLimits { bytes_max: 3 * 43, fields_max: 100 };
    assert_eq!(decoder.decode(&block, limits, |_| seen += 1), Ok(Listed::OverLimit));
    assert_eq!(seen, 3);
    let mut again = BytesMut::new();
    encoder.field(b"name-5", b"value", Indexing::Recurring, &mut again);
    assert_eq!(decode(&mut decoder, &again), Ok(fields(&[("name-5", "value")])));
}

#[test]
fn blocks_that_grow_without_bytes_end_the_connection() {
    // One large field in the table, and references of one byte to it.
    let mut bomb = hex("40 01 61 7f a1 1e");
    bomb.extend_from_slice(&vec![b'x'; 4000]);
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &bomb).unwrap();
    let mut visited = 0;
    let references = vec![0xbe; 100_000];
    let outcome = decoder.decode(&references, LIMITS, |field| visited += field.size());
    assert_eq!(outcome, Err(HpackError::ListTooLarge));
    assert!(visited <= LIMITS.bytes_max);
    // Many small ones.
    let limits = ListLimits { bytes_max: 1 << 30, fields_max: 64 };
    let mut visited = 0;
    assert_eq!(decoder.decode(&[0x82; 1000], limits, |_| visited += 1), Err(HpackError::ListTooLarge));
    assert_eq!(visited, 64);
}

#[test]
fn fields_that_are_encoded_are_decoded_for_all_sizes() {
    let mut state = 7u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..200 {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        for _ in 0..20 {
            if next(4) == 0 {
                // The decoder announces, and the encoder obeys; the last of several counts.
                for _ in 0..=next(2) {
                    let size = [0, 50, 300, 4096, 100_000][next(5)];
                    encoder.limit(size);
                    decoder.announce(size);
                }
            }
            let mut block = BytesMut::new();
            encoder.begin(&mut block);
            let mut wanted = Vec::new();
            for _ in 0..next(8) {
                let name =
                    [":path", "grpc-timeout", "te", "x-user", "authorization", "content-type"][next(6)];
                let value = "v\u{e9}\u{7f}".repeat(next(20)) + &next(3).to_string();
                let indexing = [Indexing::Recurring, Indexing::Once, Indexing::Never][next(3)];
                encoder.field(name.as_bytes(), value.as_bytes(), indexing, &mut block);
                wanted.push((name.to_owned(), value));
            }
            assert_eq!(decode(&mut decoder, &block), Ok(wanted));
        }
    }
}

#[test]
fn any_bytes_are_decoded_or_refused() {
    let mut decoder = Decoder::new(4096);
    let mut state = 1u64;
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..state % 23)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 40) as u8
            })
            .collect();
        state = state.wrapping_add(1);
        let _ = decoder.decode(&bytes, LIMITS, |field| assert!(field.size() >= 32));
        assert!(decoder.table_bytes() <= 4096);
    }
}

#[test]
fn an_indexed_field_is_one_byte_the_second_time_and_the_block_can_be_repeated() {
    let mut encoder = Encoder::new();
    let write = |encoder: &mut Encoder| {
        let mut block = BytesMut::new();
        encoder.field(b":path", b"/demo.v1.Greeter/Greet", Indexing::Recurring, &mut block);
        encoder.field(b"content-type", b"application/grpc", Indexing::Recurring, &mut block);
        block
    };
    let first = write(&mut encoder);
    let generation = encoder.generation();
    let (second, third) = (write(&mut encoder), write(&mut encoder));
    assert_eq!((second.len(), &second, generation), (2, &third, encoder.generation()));
    let mut decoder = Decoder::new(4096);
    let wanted = decode(&mut decoder, &first).unwrap();
    for _ in 0..3 {
        assert_eq!(decode(&mut decoder, &second).as_ref(), Ok(&wanted));
    }
}
