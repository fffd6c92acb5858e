//! Handshakes on loopback.

use std::io::{Read, Write};
use std::net::TcpListener;

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use super::*;
use crate::connect;
use crate::profile::ProviderProfile;
use crate::testing::{ask, request};

/// For 127.0.0.1, signed by itself.
const CERTIFICATE: &[u8] = include_bytes!("loopback.crt");
const KEY: &[u8] = include_bytes!("loopback.key");

fn certificate() -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(CERTIFICATE).unwrap()
}

/// Serves one connection on a thread, which ends when the client leaves.
fn serve(answer: &'static [u8]) -> u16 {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate()], PrivateKeyDer::from_pem_slice(KEY).unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut tls = rustls::StreamOwned::new(connection, stream);
        let mut request = [0; 4096];
        if tls.read(&mut request).is_ok() {
            tls.write_all(answer).unwrap();
            tls.conn.send_close_notify();
            tls.flush().unwrap();
        }
    });
    port
}

#[tokio::test]
async fn trusted_server_is_accepted() {
    static TRUSTING: OnceLock<Verifier> = OnceLock::new();
    let port = serve(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let config = config_with(|| TRUSTING.get_or_init(|| verifier_of(vec![certificate()]))).unwrap();
    let client =
        reqwest::Client::builder().no_proxy().tls_backend_preconfigured(config).build().unwrap();
    let answer = client.get(format!("https://127.0.0.1:{port}/")).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "ok");
}

#[tokio::test]
async fn untrusted_certificate_is_refused() {
    let port = serve(b"");
    let profile = ProviderProfile::new("acme", &format!("https://127.0.0.1:{port}/v1"), "m", None);
    let provider = connect(profile).unwrap();
    let error = ask(&*provider, request("hi")).await.0.unwrap_err();
    let shown = error.chain();
    assert_eq!(error.class(), "rejected", "{shown}");
    let known = ["is not valid here: UnknownIssuer", "no root certificates"];
    assert!(known.iter().any(|known| shown.contains(known)), "{shown}");
}

#[tokio::test]
async fn server_without_tls_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        while stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {}
    });
    let profile = ProviderProfile::new("acme", &format!("https://127.0.0.1:{port}/v1"), "m", None);
    let provider = connect(profile).unwrap();
    let error = ask(&*provider, request("hi")).await.0.unwrap_err();
    assert_eq!(error.class(), "rejected", "{}", error.chain());
    assert!(error.chain().contains("no secure connection to https://127.0.0.1"));
}

#[test]
fn missing_root_certificates_suggest_a_fix() {
    assert!(verifier_of(Vec::new()).unwrap_err().contains("ca-certificates"));
}
