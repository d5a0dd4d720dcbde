//! Arrows of flows that programs have sent.

use serde_json::Value;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::relay::Relay;

use crate::system::{Agent, Web, center, wait_for_row};

#[test]
fn a_span_has_arrows_to_what_follows_it_in_a_flow() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let agent = Agent::start(&lab, &relay);
    let mut client = agent.open("shop");
    client.send(
        r#"{"ph":"X","name":"send","ts":0,"dur":400,"pid":7,"tid":1}
           {"ph":"s","name":"order","cat":"flow","id":5,"ts":100,"pid":7,"tid":1}
           {"ph":"X","name":"unrelated","ts":500,"dur":100,"pid":7,"tid":2}
           {"ph":"X","name":"receive","ts":900,"dur":300,"pid":7,"tid":3}
           {"ph":"f","bp":"e","name":"order","cat":"flow","id":5,"ts":1000,"pid":7,"tid":3}
           {"ph":"X","name":"reply","ts":1300,"dur":100,"pid":7,"tid":3,"bind_id":"0x9","flow_out":true}
           {"ph":"X","name":"answered","ts":1600,"dur":100,"pid":7,"tid":1,"bind_id":"0x9","flow_in":true}"#,
    );
    let web = Web::show(&lab, relay.live);
    let browser = Browser::start(&lab);
    browser.open(&web.long_url());
    browser.wait_for("all rows", "return window.__view && __view().rows === 7");
    let first: i64 = wait_for_row(&browser, "send")["begin"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let (from, to) = (first - 200_000, first + 2_000_000);
    browser.run(&format!("location.hash = 'from={from}&to={to}'"));
    browser.wait_for("the view", &format!("return __view().to === '{to}'"));

    let middle = center(&wait_for_row(&browser, "unrelated")).1;
    // The line of pixels of the thread between, which arrows cross.
    let line = || {
        browser.run(&format!(
            "const canvas = document.getElementById('timeline');
             const y = ({middle} - canvas.getBoundingClientRect().top) * devicePixelRatio;
             return [...canvas.getContext('2d').getImageData(0, y, canvas.width, 1).data].join()"
        ))
    };
    let without = line();
    for (name, fact) in [
        ("send", "Flow to: shop / process 7 / thread 3 (order)"),
        (
            "receive",
            "Flow from: send, shop / process 7 / thread 1 (order)",
        ),
        ("reply", "Flow to: shop / process 7 / thread 1 (answered)"),
        (
            "answered",
            "Flow from: reply, shop / process 7 / thread 3 (answered)",
        ),
    ] {
        let (x, y) = center(&wait_for_row(&browser, name));
        browser.click(x, y);
        let facts = "return [...document.querySelectorAll('#panel-facts dt')].filter(dt => dt.textContent.startsWith('Flow'))
                     .map(dt => `${dt.textContent}: ${dt.nextSibling.firstChild.textContent}`)";
        let facts = || browser.run(facts);
        tests::wait_until(fact, || {
            let facts = facts();
            let facts = facts.as_array().unwrap();
            facts.len() == 1 && without_host(facts[0].as_str().unwrap()) == fact
        });
        tests::wait_until("an arrow", || line() != without);
        browser.run("document.getElementById('panel-close').click()");
        tests::wait_until("no arrow", || line() == without);
    }

    let (x, y) = center(&wait_for_row(&browser, "send"));
    browser.click(x, y);
    let show = "const button = [...document.querySelectorAll('#panel-facts button')].find(button => button.textContent === 'show');
                if (button) { button.click(); } return !!button";
    browser.wait_for("the button", show);
    let other = first + 1_000_000;
    let is_central = format!(
        "const {{ from, to }} = __view(); return (BigInt(from) + BigInt(to)) / 2n === {other}n"
    );
    browser.wait_for("the other end in the middle", &is_central);
    assert_eq!(
        browser.run("return __view().isFollowing"),
        Value::from(false)
    );
}

/// Removes the host of a session, which is that of the machine.
fn without_host(fact: &str) -> String {
    let (head, rest) = fact.split_once("shop").unwrap();
    let kept = head.rfind([':', ',']).unwrap() + 2;
    format!("{}shop{rest}", &head[..kept])
}
