//! TLS configuration that loads root certificates only when they are needed.
//!
//! The platform's root certificates are loaded by the first handshake, or on a thread before it
//! ([`warm`]). No option disables the verification of certificates.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_native_certs::{CertificateResult, load_certs_from_paths};

/// Files with all root certificates on various Linux distributions. The first usable file is taken.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

type Verifier = Result<Arc<WebPkiServerVerifier>, String>;

/// Verifier with the platform's root certificates, shared by all clients of the process.
static PLATFORM: OnceLock<Verifier> = OnceLock::new();

/// Starts loading the platform's root certificates on a thread, unless they are loaded already.
pub(crate) fn warm() {
    if PLATFORM.get().is_none() {
        // Without the thread the first handshake does it; nothing is lost but time.
        std::thread::Builder::new()
            .name("tls-roots".to_owned())
            .spawn(|| {
                platform();
            })
            .ok();
    }
}

/// TLS configuration that trusts the platform's root certificates.
pub(crate) fn client_config() -> Result<ClientConfig, Error> {
    config_with(platform)
}

/// TLS configuration with the verifier that `roots` returns. `roots` is first called when a
/// certificate arrives.
pub(crate) fn config_with(roots: fn() -> &'static Verifier) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Arc::new(LazyVerifier { roots, algorithms });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn platform() -> &'static Verifier {
    PLATFORM.get_or_init(|| {
        let loaded = bundle().unwrap_or_else(rustls_native_certs::load_native_certs);
        for error in &loaded.errors {
            tracing::debug!(%error, "a root certificate cannot be read");
        }
        verifier_of(loaded.certs)
    })
}

/// Root certificates of the first usable bundle file. `None`: there is none, the system is not
/// Linux, or an environment variable names other certificates. Loading all certificates of the
/// system's folder too takes twice as long and finds the same ones.
fn bundle() -> Option<CertificateResult> {
    let is_overridden =
        ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    if is_overridden || !cfg!(target_os = "linux") {
        return None;
    }
    BUNDLES
        .iter()
        .map(|file| load_certs_from_paths(Some(Path::new(file)), None))
        .find(|loaded| !loaded.certs.is_empty())
}

/// Creates a verifier that trusts `certificates` and nothing else. Certificates that cannot be
/// parsed are ignored; if none is left, returns an error text.
pub(crate) fn verifier_of(certificates: Vec<CertificateDer<'static>>) -> Verifier {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err("this machine has no root certificates (on Debian: install \
                    ca-certificates; elsewhere set SSL_CERT_FILE)"
            .to_owned());
    }
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| error.to_string())
}

/// Certificate verifier that loads its root certificates when the first certificate arrives.
#[derive(Debug)]
struct LazyVerifier {
    roots: fn() -> &'static Verifier,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for LazyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match (self.roots)() {
            Ok(verifier) => verifier.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            ),
            Err(reason) => Err(Error::General(reason.clone())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
