//! A Kubernetes API on loopback with answers defined by a test, including invalid ones. The simulated API with
//! objects is in the tests of the whole workspace.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// The reaction of the API to a request.
pub(super) enum Reply {
    /// Sends these bytes, and closes the connection.
    Send(Vec<u8>),
    /// Does not answer, and keeps the connection open.
    Hang,
}

#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// Its number, starting with 0.
    pub(super) number: usize,
    /// Its request line without the version.
    pub(super) line: String,
    /// Its headers, in lower case.
    pub(super) headers: String,
    pub(super) body: String,
}

pub(super) struct Fake {
    pub(super) port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    serving: JoinSet<()>,
}

impl Fake {
    pub(super) async fn start(
        tls: Option<TlsAcceptor>,
        reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let (log, reply) = (Arc::clone(&asked), Arc::new(reply));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, log, reply) = (tls.clone(), Arc::clone(&log), Arc::clone(&reply));
                open.spawn(async move {
                    match tls {
                        None => serve(stream, &log, &*reply).await,
                        // A client that does not trust the certificate closes the connection.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &log, &*reply).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, asked, serving }
    }

    /// Closes the port. Returns when it refuses connections, which is later than the drop of `self`.
    pub(super) async fn stop(mut self) {
        self.serving.shutdown().await;
    }

    /// Returns the requests so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no test has failed").clone()
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    log: &Mutex<Vec<Asked>>,
    reply: &(impl Fn(&Asked) -> Reply + ?Sized),
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).expect("text");
    let (line, headers) = head.split_once("\r\n").expect("a line");
    let headers = headers.to_lowercase();
    let length = headers.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    if stream.read_exact(&mut body).await.is_err() {
        return;
    }
    let asked = {
        let mut log = log.lock().expect("no test has failed");
        let line = line.strip_suffix(" HTTP/1.1").expect("the version").to_owned();
        let body = String::from_utf8(body).expect("text");
        let asked = Asked { number: log.len(), line, headers, body };
        log.push(asked.clone());
        asked
    };
    match reply(&asked) {
        Reply::Send(bytes) => {
            // The client may close the connection before it has read everything.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Reply::Hang => std::future::pending().await,
    }
}

/// Returns an answer with a status and a body.
pub(super) fn answer(status: u16, body: &str) -> Reply {
    let length = body.len();
    Reply::Send(format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes())
}
