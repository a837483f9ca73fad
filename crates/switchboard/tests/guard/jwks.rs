//! Key sets by URL: fetched with the first token, again for unknown keys, and kept while the provider is
//! down.

use super::*;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair},
};
use std::{sync::Mutex, time::Duration};
use switchboard::{Code, auth::Jwt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

/// A provider: its response, and the number of fetches.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<(String, usize)>>);

impl Provider {
    async fn listen(&self, address: &str) -> (String, JoinHandle<()>) {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let provider = self.clone();
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 2048];
                let _ = stream.read(&mut head).await;
                assert!(head.starts_with(b"GET /keys?v=1 HTTP/1.1\r\n"));
                let body = {
                    let mut state = provider.0.lock().unwrap();
                    state.1 += 1;
                    state.0.clone()
                };
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (address, task)
    }

    fn publish(&self, keys: &[&Signer]) {
        let keys: Vec<String> = keys.iter().map(|key| key.public()).collect();
        self.0.lock().unwrap().0 = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
    }

    fn fetches(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

struct Signer(&'static str, Ed25519KeyPair);

impl Signer {
    fn new(id: &'static str) -> Signer {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Signer(id, Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap())
    }

    fn public(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.1.public_key());
        format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"{}","x":"{x}"}}"#, self.0)
    }

    fn token(&self, sub: &str) -> String {
        let header = format!(r#"{{"alg":"EdDSA","kid":"{}"}}"#, self.0);
        let claims = format!(r#"{{"sub":"{sub}","exp":9999999999}}"#);
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.1.sign(signed.as_bytes());
        format!("Bearer {signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

async fn ask_with(client: &Client, token: &str) -> Result<(), Status> {
    let call = client.call::<Vec<u8>>(&ECHO, &[1u8, 2].to_vec()).meta("authorization", token.to_owned());
    soon(call).await.map(drop)
}

#[tokio::test]
async fn keys_are_fetched_kept_and_bounded() {
    let (one, two, stranger) = (Signer::new("one"), Signer::new("two"), Signer::new("stranger"));
    let provider = Provider::default();
    provider.publish(&[&one]);
    let (address, task) = provider.listen("127.0.0.1:0").await;
    let jwt = Jwt::jwks_url(&format!("http://{address}/keys?v=1"), None).unwrap().jwks_pause(Duration::ZERO);
    let (running, _) = start(Server::new().auth(jwt)).await;
    for client in [
        Client::on(&running, "", Codec::Postcard).await,
        Client::on(&running, "?wire=grpc", Codec::Json).await,
    ] {
        ask_with(&client, &one.token("alice")).await.unwrap();
    }
    assert_eq!(provider.fetches(), 1, "known keys are not fetched again");
    let client = Client::on(&running, "", Codec::Postcard).await;
    let status = ask_with(&client, &stranger.token("eve")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert_eq!(provider.fetches(), 2);
    // Another key takes the place of the first one.
    provider.publish(&[&two]);
    ask_with(&client, &two.token("alice")).await.unwrap();
    assert_eq!(ask_with(&client, &one.token("alice")).await.unwrap_err().code(), Code::Unauthenticated);
    // The provider is down, or its response is not a key set: the fetched keys stay valid.
    provider.0.lock().unwrap().0 = "no keys".to_owned();
    assert_eq!(ask_with(&client, &stranger.token("eve")).await.unwrap_err().code(), Code::Unauthenticated);
    ask_with(&client, &two.token("alice")).await.unwrap();
    provider.0.lock().unwrap().0 =
        format!(r#"{{"keys":[{}],"more":"{}"}}"#, stranger.public(), "x".repeat(300 << 10));
    assert_eq!(ask_with(&client, &stranger.token("eve")).await.unwrap_err().code(), Code::Unauthenticated);
    task.abort();
    let _ = task.await;
    assert_eq!(ask_with(&client, &stranger.token("eve")).await.unwrap_err().code(), Code::Unauthenticated);
    ask_with(&client, &two.token("bob")).await.unwrap();
}

#[tokio::test]
async fn without_keys_calls_are_refused_as_ours_to_mend_and_tries_are_few() {
    let one = Signer::new("one");
    let provider = Provider::default();
    provider.0.lock().unwrap().0 = "{}".to_owned();
    let (address, _task) = provider.listen("127.0.0.1:0").await;
    let (running, _) =
        start(Server::new().auth(Jwt::jwks_url(&format!("http://{address}/keys?v=1"), None).unwrap())).await;
    let client = Client::on(&running, "", Codec::Postcard).await;
    for _ in 0..5 {
        let status = ask_with(&client, &one.token("alice")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(!status.message().contains(&address), "{status}");
    }
    assert_eq!(provider.fetches(), 1, "the next try is later");
    let wrong = Jwt::jwks_url("ftp://a", None).unwrap_err();
    assert!(wrong.is_config() && wrong.to_string().contains("neither http://"), "{wrong}");
}
