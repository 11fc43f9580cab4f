"""Failures of what the program reaches over the network: hubs of models and data, trackers. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_download = partial(Rule, key="download-failed", again=None)
_tracker = partial(Rule, key="tracker", place="line")
_tracker_lost = partial(Rule, key="tracker-unreachable", again=None)

RULES: Final = (
    line_rule(
        key="pod-waiting",
        pattern=r"FailedScheduling\b.*?(?P<why>\d+/\d+ nodes are available: .+)",
        example="Warning  FailedScheduling  default-scheduler  0/41 nodes are available: 35 Insufficient cpu.",
        what="Kubernetes has no node for the pod: {why}",
        advice="ask for no more than a node has free: `kubectl describe nodes` prints it",
        again=None,
    ),
    _tracker_lost(
        pattern=r"MlflowException: API request to (?P<url>(?:endpoint )?\S+) failed with "
        r"(?:error code (?P<code>\d+)|exception)",
        example="mlflow.exceptions.MlflowException: API request to endpoint /api/2.0/mlflow/runs/get failed with error "
        "code 401 != 200. Response body: '<html>'",
        what="the MLflow server did not accept a request to {url}: {code}",
        advice="check MLFLOW_TRACKING_URI and the password; nodes without internet can log to a folder "
        "(file:///shared/mlruns)",
    ),
    _tracker_lost(
        pattern=r"wandb\.errors\.(?:errors\.)?CommError: (?P<why>.*)",
        example="wandb.errors.CommError: Run initialization has timed out...",
        what="wandb did not reach its server, or was refused: {why}",
        advice="export WANDB_MODE=offline, and run `wandb sync` on the login node afterwards",
    ),
    _tracker(
        pattern=r"wandb: ERROR (?P<why>(?:Error while calling W&B API: .*(?i:permission|denied|40[134])|"
        r"Launch exception: (?i:permission denied)|Error communicating with wandb process).*)",
        example="wandb: ERROR Error while calling W&B API: permission denied (<Response [403]>)",
        what="wandb was refused, or its process did not start: {why}",
        advice="check the entity, the project and the key; WANDB_MODE=offline needs none",
    ),
    _tracker(
        pattern=r"api_key not configured \(no-tty\)|UsageError: No API key configured",
        example="wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        what="wandb has no API key in the job",
        advice="run `wandb login` on the login node, or export WANDB_API_KEY; WANDB_MODE=offline needs none",
    ),
    _tracker(
        pattern=r"(?P<name>Comet\.?ml) requires an API key",
        example="ValueError: Comet.ml requires an API key. Please provide as the first argument to Experiment(api_key)",
        what="the tracker {name} has no API key in the job",
        advice="export COMET_API_KEY before you submit the job",
    ),
    Rule(
        key="hub-denied",
        pattern=r"GatedRepoError|Cannot access gated repo|You are trying to access a gated repo|"
        r"401 Client Error.*huggingface\.co",
        example="huggingface_hub.errors.GatedRepoError: 403 Client Error.",
        what="the Hugging Face hub does not give this model or data set to the job's token",
        advice="accept its terms on its page, then run `hf auth login` on the login node or export HF_TOKEN",
    ),
    Rule(
        key="hub-limit",
        pattern=r"429 (?:Client Error: )?Too Many Requests for url: https://huggingface\.co",
        example="huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: "
        "https://huggingface.co/nvidia/DeepSeek-R1-0528-FP4-v2/resolve/main/config.json",
        what="the Hugging Face hub refused the job because it asked too often: every rank asks by itself",
        advice="download once on the login node to a shared HF_HOME, and export HF_HUB_OFFLINE=1 in the job",
        again=True,
    ),
    Rule(
        key="hub-missing",
        pattern=r"(?P<name>\S+) is not a local folder and is not a valid model identifier|RepositoryNotFoundError",
        example="OSError: prajjwal1/bert-tiny is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'",
        what="there is no model or folder of this name, or the job has no token for it: {name}",
        advice="correct the name or the path; for a private one run `hf auth login` or export HF_TOKEN",
    ),
    Rule(
        key="service-busy",
        pattern=r"\b(?:429|502|503|504)\b.*(?i:too many|unavailable|bad gateway|gateway time|busy|try again)|"
        r"RateLimitError|TooManyRequests|ServiceUnavailable|(?i:rate limit (?:was |is )?(?:exceeded|reached))",
        example="requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: "
        "https://example.org/data",
        what="a server that the program asked is busy, or was asked too often",
        advice="start it again later; let one rank ask and give the answer to the others, or download before the job",
        again=True,
    ),
    _download(
        pattern=r"OfflineModeIsEnabled: Cannot reach (?P<url>\S+)|outgoing traffic has\b",
        example="huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/upstage/SOLAR-10.7B/"
        "resolve/main/hf_quant_config.json: offline mode is enabled.",
        what="a file is not in the cache, and the offline mode (HF_HUB_OFFLINE=1) forbids its download: {url}",
        advice="download it on the login node to the HF_HOME that the job uses",
    ),
    _download(
        pattern=r"CERTIFICATE_VERIFY_FAILED",
        example="urllib.error.URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
        "unable to get local issuer certificate (_ssl.c:997)>",
        what="a download failed because the server's certificate is not known on the node",
        advice="export SSL_CERT_FILE=$(python -m certifi), or download the file on the login node first",
    ),
    _download(
        pattern=r"HTTPS?ConnectionPool|Max retries exceeded with url|urlopen error|Couldn't (?:connect to|reach)|"
        r"LocalEntryNotFoundError|We couldn't connect to|gaierror: \[Errno -[23]\]",
        example="requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hf.co', port=443): Max retries "
        "exceeded with url: /api/models/gpt2 (Caused by NewConnectionError: [Errno 101] Network is unreachable)",
        what="the program could not reach a server; nodes often have no access to the internet",
        advice="download it on the login node first, to a folder that the nodes share (HF_HOME, TORCH_HOME)",
    ),
)
