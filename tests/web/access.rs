//! Access to the page: clients that get it, and those that do not.

use std::fs;
use std::process::Command;

use tests::browser::Browser;
use tests::certificates::Certificates;
use tests::lab::Lab;
use tests::{test_live, traces};

use crate::system::Web;

const UPGRADE: &str = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn directory(lab: &Lab) -> String {
    traces::with_losses(lab).to_str().unwrap().to_owned()
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let lab = Lab::new();
    let web = Web::start(&lab, &[&directory(&lab)]);
    let page = web.request("/", "");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for header in [
        "content-security-policy: default-src 'none'",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
    ] {
        assert!(page.contains(header), "{header}");
    }
    let refused = web.request("/", "Host: evil.example\r\n");
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let foreign = format!("{UPGRADE}Origin: http://evil.example\r\n");
    let foreign = web.request("/socket", &foreign);
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    let missing = web.request("/other", "");
    assert!(missing.starts_with("HTTP/1.1 404"), "{missing}");
}

#[test]
fn token_in_the_url_is_needed_beyond_loopback_and_expires() {
    let lab = Lab::new();
    let directory = directory(&lab);
    let web = Web::start_with(&lab, &["web", "--listen=0.0.0.0:0", &directory]);
    let token = web.url.split("token=").nth(1).expect("a token").to_owned();
    assert_eq!(token.len(), 32, "{token}");
    for wrong in [
        "/",
        "/?token=",
        "/?token=0123456789abcdef0123456789abcdef",
        "/socket",
    ] {
        let refused = web.request(wrong, "");
        let is_refused = refused.starts_with("HTTP/1.1 403") || refused.starts_with("HTTP/1.1 400");
        assert!(is_refused && !refused.contains("<canvas"), "{refused}");
    }
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    browser.wait_for(
        "the page is connected",
        "return __view().isConnected && __view().rows > 0",
    );
    drop(web);

    let file = lab.path().join("token");
    fs::write(&file, "chosen-elsewhere-0123\n").unwrap();
    let file = file.to_str().unwrap();
    let short = [
        "web",
        "--listen=127.0.0.1:0",
        "--token",
        file,
        "--token-lifetime=1",
        &directory,
    ];
    let web = Web::start_with(&lab, &short);
    assert!(
        web.url.ends_with("/?token=chosen-elsewhere-0123"),
        "{}",
        web.url
    );
    // A page that is open then is closed: the request ends. On a busy machine the token may have
    // expired before it.
    let socket = web.request("/socket?token=chosen-elsewhere-0123", UPGRADE);
    let was_open = socket.starts_with("HTTP/1.1 101");
    assert!(was_open || socket.starts_with("HTTP/1.1 403"), "{socket}");
    tests::wait_until("the token has expired", || {
        web.request("/?token=chosen-elsewhere-0123", "")
            .contains("the token has expired")
    });
}

#[test]
fn page_is_encrypted_with_the_certificate_of_its_host() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certificates");
    let (certificate, key) = (
        certificates.file("server.pem"),
        certificates.file("server.key"),
    );
    let directory = directory(&lab);
    let options = ["--https-cert", &certificate, "--https-key", &key];
    let web = [&["web", "--listen=0.0.0.0:0"], &options[..], &[&directory]].concat();
    let web = Web::start_with(&lab, &web);
    let is_named = web.url.starts_with("https://localhost:") && web.url.contains("/?token=");
    assert!(is_named, "{}", web.url);
    // A client that trusts the CA, and no other, gets the page; the browser, its WebSocket too.
    let script = "import ssl, sys, urllib.request as r; \
                  c = ssl.create_default_context(cafile=sys.argv[1]); \
                  print(r.urlopen(sys.argv[2], context=c).read().decode())";
    let ca = certificates.file("ca.pem");
    let mut client = Command::new(peers::program("python3"));
    let fetched = client.args(["-c", script, &ca, &web.url]).output().unwrap();
    assert!(
        fetched.status.success(),
        "{}",
        String::from_utf8_lossy(&fetched.stderr)
    );
    assert!(String::from_utf8_lossy(&fetched.stdout).contains("<canvas"));
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    browser.wait_for(
        "the page is connected",
        "return __view().isConnected && __view().rows > 0",
    );
    // Without TLS nobody gets an answer, and others are served on.
    assert!(!web.request("/", "").contains("HTTP/1.1 200"));
    let other = Certificates::create(&lab, "other");
    let wrong = [
        "--https-cert",
        &certificate,
        "--https-key",
        &other.file("server.key"),
    ];
    for (options, status) in [(&wrong[..], 1), (&wrong[..2], 2)] {
        let arguments = [&["web"], options, &[&directory]].concat();
        let ended = test_live::start(&lab, &arguments).wait();
        let errors = ended.stderr.join("\n");
        assert_eq!(ended.status.code(), Some(status), "{errors}");
        assert!(errors.contains("key"), "{errors}");
    }
}

#[test]
fn wrong_token_files_and_ports_in_use_are_errors() {
    let lab = Lab::new();
    let directory = directory(&lab);
    let file = lab.path().join("token");
    fs::write(&file, "short").unwrap();
    let web = Web::start(&lab, &[&directory]);
    let in_use = format!("--listen={}", web.address());
    for (arguments, status, text) in [
        (
            ["web", "--token", file.to_str().unwrap(), &directory],
            1,
            "16 to 256",
        ),
        (
            ["web", &in_use, "--seek=last", &directory],
            1,
            "cannot listen",
        ),
        (["web", "--filter", "$name ==", &directory], 2, "filter"),
    ] {
        let ended = test_live::start(&lab, &arguments).wait();
        let errors = ended.stderr.join("\n");
        assert_eq!(ended.status.code(), Some(status), "{errors}");
        assert!(errors.contains(text), "{errors}");
    }
}
