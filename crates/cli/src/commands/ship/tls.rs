//! Streams, and TLS in them: the roots that certificates are checked against, and our own certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// TCP, a tunnel through a proxy, or TLS in one of them.
pub type Stream = TokioIo<Box<dyn Connection>>;

/// What a [`Stream`] goes over.
pub trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection for S {}

/// What connections by TLS are made with.
pub struct Tls {
    roots: Arc<RootCertStore>,
    identity: Option<Identity>,
}

/// The files of our own certificate, with those that lead to its root, and of its key.
#[derive(Clone, Debug)]
pub struct Identity {
    /// PEM.
    pub certificate: PathBuf,
    /// PEM: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

impl Tls {
    /// Reads the roots: those of the file, or else the system's.
    ///
    /// # Errors
    /// If there are none, or if the identity cannot be read.
    pub fn new(roots: Option<&Path>, identity: Option<Identity>) -> Result<Self> {
        let roots = Arc::new(match roots {
            Some(file) => roots_of(file)?,
            None => roots_of_system()?,
        });
        let tls = Self { roots, identity };
        tls.config(true)?;
        Ok(tls)
    }

    /// Begins TLS with a host, for the `protocol`. Only a receiver is shown the identity, not a proxy.
    ///
    /// # Errors
    /// If one side does not want the other's certificate.
    pub async fn over(
        &self,
        stream: Stream,
        host: &str,
        protocol: &[u8],
        is_receiver: bool,
    ) -> Result<Stream> {
        let mut config = self.config(is_receiver)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream.into_inner());
        Ok(TokioIo::new(Box::new(stream.await.context("no TLS")?)))
    }

    /// The identity is read each time: certificates of services live for hours.
    fn config(&self, is_receiver: bool) -> Result<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots.clone());
        let Some(of) = self.identity.as_ref().filter(|_| is_receiver) else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_file(&of.key)
            .map_err(|error| anyhow!("cannot read the key {}: {error}", of.key.display()))?;
        builder
            .with_client_auth_cert(certificates(&of.certificate)?, key)
            .with_context(|| {
                let (certificate, key) = (of.certificate.display(), of.key.display());
                format!("{key} is no key of the certificate {certificate}")
            })
    }
}

fn roots_of(file: &Path) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for one in certificates(file)? {
        store
            .add(one)
            .with_context(|| format!("a certificate of {} is no root", file.display()))?;
    }
    Ok(store)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|error| {
        anyhow!(
            "cannot read the certificates of {}: {error}",
            file.display()
        )
    })?;
    if all.is_empty() {
        bail!("{} has no certificate", file.display());
    }
    Ok(all)
}

fn roots_of_system() -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    // One that cannot be read does not hinder the others.
    let found = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let why = found.errors.first().map(|error| format!(": {error}"));
        bail!(
            "this machine has no root certificates{}; give --ca-file, or set SSL_CERT_FILE",
            why.unwrap_or_default()
        );
    }
    Ok(store)
}
