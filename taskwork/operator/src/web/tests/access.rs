//! Read access.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};

use super::*;
use crate::web::access::tests::{TOKEN, token, write};

/// The certificate, key and token files of a server that other machines can reach.
struct Files {
    folder: TempDir,
    certificate: String,
}

impl Files {
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = cert.pem();
        for (name, content) in [
            ("cert.pem", &certificate),
            ("key.pem", &signing_key.serialize_pem()),
            ("token", &TOKEN.to_owned()),
        ] {
            write(&folder.path().join(name), content);
        }
        Self { folder, certificate }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn token_is_required_for_all_paths_but_health() {
    let files = Files::make();
    let server = Server::replayed(&["--token-file", &files.path("token")]);
    let plain = sign_in(&server, &format!("token={TOKEN}"), "origin: http://localhost\r\n");
    assert!(!plain.header("set-cookie").unwrap().contains("Secure"), "it would not come back");
    let signed_in = sign_in(&server, &format!("token={TOKEN}"), "origin: https://localhost\r\n");
    assert_eq!((signed_in.status(), signed_in.header("location")), (303, Some("/")));
    let cookie = signed_in.header("set-cookie").unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains(TOKEN));
    let made_up = format!("cookie: {}=9999999999.00\r\n", token().cookie_name());
    let cookie = format!("cookie: {}\r\n", cookie.split_once(';').unwrap().0);
    let bearer = format!("authorization: Bearer {TOKEN}\r\n");
    let nobody = ["", "authorization: Bearer another-token-nobody-guesses\r\n", &made_up];
    for (path, without, with) in [
        ("/", 303, 200),
        ("/main.js", 401, 200),
        ("/api/view", 401, 200),
        ("/api/job/j-0000000001", 401, 200),
        ("/api/job/none", 401, 404),
        ("/events", 401, 200),
        ("/metrics", 401, 200),
        ("/nothing", 401, 404),
        ("/livez", 200, 200),
        ("/readyz", 200, 200),
        ("/style.css", 200, 200),
        ("/icon.svg", 200, 200),
        ("/sign-in", 200, 200),
    ] {
        // A stream has no end.
        let method = if path == "/events" { "HEAD" } else { "GET" };
        let status = |headers: &str| {
            let head =
                format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
            server.answer(head.as_bytes()).status()
        };
        for headers in nobody {
            assert_eq!(status(headers), without, "{path} {headers}");
        }
        assert_eq!((status(&bearer), status(&cookie)), (with, with), "{path}");
    }
    let refused = server.get("/api/view");
    assert!(
        refused.header("www-authenticate").unwrap().starts_with("Bearer")
            && refused.body().contains("/sign-in")
    );
    assert!(!refused.body().contains(JOB));
}

fn sign_in(server: &Server, form: &str, headers: &str) -> Answer {
    let head = format!(
        "POST /sign-in HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{form}",
        form.len()
    );
    server.answer(head.as_bytes())
}

#[test]
fn sign_in_form_requires_token_and_own_origin() {
    let files = Files::make();
    let server = Server::replayed(&["--token-file", &files.path("token")]);
    let form = server.get("/sign-in");
    assert!(form.body().contains("name=\"token\"") && form.body().contains("method=\"post\""));
    let right = format!("token={TOKEN}");
    for wrong in ["", "token=", "token=guess", "other=1"] {
        let refused = sign_in(&server, wrong, "");
        assert_eq!((refused.status(), refused.header("set-cookie")), (401, None), "{wrong}");
        assert!(refused.body().contains("not the token"));
    }
    assert_eq!(sign_in(&server, &right, "origin: http://localhost\r\n").status(), 303);
    for origin in ["https://evil.example", "null", "http://localhost.evil.example"] {
        assert_eq!(sign_in(&server, &right, &format!("origin: {origin}\r\n")).status(), 403, "{origin}");
    }
    let long = format!("token={}", "x".repeat(10_000));
    assert_eq!(sign_in(&server, &long, "").status(), 413);
    let other =
        b"POST /sign-in HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(server.answer(other).status(), 421);
    // Without a token there is no form.
    let open = Server::replayed(&[]);
    assert!([404, 405].contains(&sign_in(&open, &right, "").status()));
}

#[test]
fn reachable_address_requires_tls_and_token() {
    let files = Files::make();
    let (certificate, key, token) = (files.path("cert.pem"), files.path("key.pem"), files.path("token"));
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    let runtime = Runtime::new().unwrap();
    let _here = runtime.enter();
    for more in [&[][..], &["--token-file", &token], &tls] {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8787"] {
            let refused = offer(&[&["--listen", address], more].concat()).open().unwrap_err().to_string();
            for word in ["--tls-cert", "--tls-key", "--token-file", address, "127.0.0.1", "ssh -L"] {
                assert!(refused.contains(word), "no {word} in {refused}");
            }
        }
    }
    let all = [&["--listen", "0.0.0.0:0", "--token-file", &token][..], &tls].concat();
    assert!(offer(&all).open().unwrap().url().starts_with("https://"));
    let swapped = ["--tls-cert", &key, "--tls-key", &certificate];
    let open = files.path("open.pem");
    std::fs::copy(&key, &open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let exposed = ["--listen", "127.0.0.1:0", "--tls-cert", &certificate, "--tls-key", &open];
    let refused = offer(&exposed).open().unwrap_err().to_string();
    assert!(refused.contains("--tls-key") && refused.contains("chmod 600"), "{refused}");
    for wrong in [&swapped[..], &["--tls-cert", "none", "--tls-key", &key], &["--token-file", "none"]] {
        let refused = offer(&[&["--listen", "127.0.0.1:0"], wrong].concat()).open().unwrap_err().to_string();
        assert!(refused.contains("--t"), "{refused}");
    }
    assert!(Line::try_parse_from(["test", "--tls-cert", &certificate]).is_err(), "a key is missing");
}

#[test]
fn pages_are_served_by_tls() {
    let files = Files::make();
    let (certificate, key, token) = (files.path("cert.pem"), files.path("key.pem"), files.path("token"));
    let server = Server::replayed(&["--tls-cert", &certificate, "--tls-key", &key, "--token-file", &token]);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(files.certificate.as_bytes()).unwrap()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let client = client.with_safe_default_protocol_versions().unwrap();
    let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
    let get = |headers: &str| {
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::clone(&client), name).unwrap();
        let head = format!("GET /api/view HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        answer(StreamOwned::new(session, server.connect()), head.as_bytes())
    };
    assert_eq!(get("").status(), 401);
    let view = get(&format!("authorization: Bearer {TOKEN}\r\n"));
    assert_eq!((view.status(), &view.json()["source"]), (200, &json!("replay")));
    assert_eq!(server.get("/livez").status(), 0, "without TLS there is no answer");
}
