//! Surveys: silent, killed and late respondents, and messages that are no answers.

use super::{forwarder::Forwarder, *};
use switchboard_pattern::{
    ErrorKind,
    survey::{Respondent, Surveyor},
};
use switchboard_socket::{Dealer, Router};

const SHORT: Duration = Duration::from_millis(300);

async fn respondent(endpoint: &str, answer: &'static str) -> tokio::task::JoinHandle<()> {
    let respondent = Respondent::connect(endpoint).await.unwrap();
    tokio::spawn(async move {
        while let Ok(question) = respondent.recv().await {
            question.answer(answer).await.unwrap();
        }
    })
}

async fn answers(surveyor: &mut Surveyor, limit: Duration) -> Vec<String> {
    let answers = within(surveyor.survey("question", limit).unwrap().all()).await.unwrap();
    let mut answers: Vec<_> =
        answers.iter().map(|answer| String::from_utf8(answer.to_vec()).unwrap()).collect();
    answers.sort();
    answers
}

#[tokio::test]
async fn a_survey_ends_when_all_have_answered() {
    let mut surveyor = Surveyor::bind(ANY).await.unwrap();
    let endpoint = surveyor.endpoints()[0].to_string();
    let _tasks = [respondent(&endpoint, "a").await, respondent(&endpoint, "b").await];
    until(|| surveyor.respondents() == 2).await;
    for _ in 0..3 {
        assert_eq!(answers(&mut surveyor, LIMIT).await, ["a", "b"]);
    }
    let stats = surveyor.stats();
    assert_eq!((stats.surveys, stats.answers, stats.ignored, stats.dropped), (3, 6, 0, 0));
}

#[tokio::test]
async fn without_respondents_there_are_no_answers() {
    let mut surveyor = Surveyor::bind(ANY).await.unwrap();
    assert_eq!(answers(&mut surveyor, LIMIT).await, Vec::<String>::new());
}

#[tokio::test]
async fn silent_and_killed_respondents_are_awaited_until_the_time_limit_only() {
    let mut surveyor = Surveyor::bind(ANY).await.unwrap();
    let endpoint = surveyor.endpoints()[0].to_string();
    let _answering = respondent(&endpoint, "a").await;
    let silent = Respondent::connect(&endpoint).await.unwrap();
    until(|| surveyor.respondents() == 2).await;
    assert_eq!(answers(&mut surveyor, SHORT).await, ["a"]);
    let late = within(silent.recv()).await.unwrap();
    drop(silent);
    late.answer("late").await.unwrap();
    assert_eq!(answers(&mut surveyor, SHORT).await, ["a"]);
    assert_eq!(surveyor.stats().answers, 2);
}

#[tokio::test]
async fn a_respondent_whose_network_fails_answers_the_next_survey() {
    let mut surveyor = Surveyor::bind(ANY).await.unwrap();
    let network = Forwarder::to(&surveyor.endpoints()[0].to_string()).await;
    let _respondent = respondent(&network.endpoint, "a").await;
    until(|| surveyor.respondents() == 1).await;
    network.cut();
    until(|| surveyor.respondents() == 0).await;
    network.repair();
    until(|| surveyor.respondents() == 1).await;
    assert_eq!(answers(&mut surveyor, LIMIT).await, ["a"]);
}

#[tokio::test]
async fn the_respondent_may_be_the_bound_side() {
    let respondent = Respondent::with_options(Default::default()).unwrap();
    let endpoint = respondent.bind_to(ANY).await.unwrap().to_string();
    let mut surveyor = Surveyor::with_options(Default::default()).unwrap().answers_max(1);
    surveyor.connect_to(&endpoint).await.unwrap();
    until(|| surveyor.respondents() == 1).await;
    tokio::spawn(async move { respondent.recv().await.unwrap().answer("a").await });
    assert_eq!(answers(&mut surveyor, LIMIT).await, ["a"]);
}

#[tokio::test]
async fn answers_are_limited_in_number_and_size() {
    let mut surveyor = Surveyor::bind(ANY).await.unwrap().answers_max(1);
    let endpoint = surveyor.endpoints()[0].to_string();
    let _tasks = [respondent(&endpoint, "a").await, respondent(&endpoint, "a").await];
    until(|| surveyor.respondents() == 2).await;
    assert_eq!(answers(&mut surveyor, LIMIT).await, ["a"]);
    let small = Respondent::connect(&endpoint).await.unwrap().answer_bytes_max(3);
    until(|| surveyor.respondents() == 3).await;
    drop(surveyor.survey("question", SHORT).unwrap());
    let error = within(small.recv()).await.unwrap().answer("four").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert!(error.to_string().contains("answer_bytes_max=3"), "{error}");
}

#[tokio::test]
async fn other_messages_are_ignored_by_both_sides() {
    let mut surveyor = Surveyor::bind(ANY).await.unwrap();
    let dealer = Dealer::connect(&surveyor.endpoints()[0].to_string()).await.unwrap();
    until(|| surveyor.respondents() == 1).await;
    let mut survey = surveyor.survey("question", LIMIT).unwrap();
    let question = recv(&dealer).await;
    let number = question.frames()[0].clone();
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..200 {
        let frame = |random: &mut fastrand::Rng| vec![random.u8(..); random.usize(..20)];
        let frames: Vec<_> = (0..random.usize(1..5)).map(|_| frame(&mut random)).collect();
        dealer.send(switchboard_socket::Message::new(frames)).await.unwrap();
    }
    for answer in ["first", "second"] {
        dealer.send([number.clone(), answer.into()]).await.unwrap();
    }
    assert_eq!(within(survey.next()).await.unwrap().unwrap(), &b"first"[..]);
    assert_eq!(within(survey.next()).await.unwrap(), None);
    assert_eq!(surveyor.stats().ignored, 200);

    let router = Router::bind(ANY).await.unwrap();
    let respondent = Respondent::connect(&router.endpoints()[0].to_string()).await.unwrap();
    until(|| router.stats().peers.iter().any(|peer| peer.is_connected)).await;
    let id = router.stats().peers[0].routing_id.clone();
    for frames in [vec![id.clone(), "x".into()], vec![id.clone(), "1234567".into(), "x".into()]] {
        router.send(frames).await.unwrap();
    }
    router.send([id, "12345678".into(), "valid".into()]).await.unwrap();
    assert_eq!(within(respondent.recv()).await.unwrap().body(), &b"valid"[..]);
    assert_eq!(respondent.invalid(), 2);
}
