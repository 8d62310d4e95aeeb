"""What the README and docs/ tell people to type, read or look at exists as it is written."""

import ast
import importlib
from pathlib import Path
import re
import shlex

import pytest

from asyncppo_ros.config import Config
from asyncppo_ros.learning.metrics import EVALUATOR_METRICS, LEARNER_METRICS, metrics_table
from asyncppo_ros.robot.safety import Mode
from asyncppo_ros.robot.topics import COMMAND_TYPES, output_topic
from asyncppo_ros.settings import build, parse_text, read_yaml, settings
from asyncppo_ros.tools.bench import BENCHES
from asyncppo_ros.tools.cli import VERBS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))]
SETTINGS = {name: (default, info) for name, default, info in settings(Config)}
LAUNCH_FILES = sorted(path.name for path in (ROOT / 'launch').glob('*.launch.py'))
# ROS's own arguments, which look like launch arguments.
ROS_OWN = ('__ns', '__node', 'use_sim_time')
# The groups of the settings, longest names first.
GROUPS = '|'.join(sorted({name.partition('.')[0] for name in SETTINGS if '.' in name}, key=len,
                         reverse=True))
# The profiles that the text calls so, by their names in nodes/qos.py.
QOS = {'states': 'SENSOR_QOS', 'commands': 'COMMAND_QOS', 'latched': 'LATCHED_QOS'}
LIFECYCLE = ('configure', 'activate', 'deactivate', 'cleanup', 'shutdown')
# Options of other programs that the text names by themselves.
FOREIGN = ('--system-site-packages', '--symlink-install', '--editable', '--ros-args')


def text_of(page):
    return page.read_text(encoding='utf-8')


def code_blocks(page, language):
    """Give the contents of the fenced blocks of one language."""
    return re.findall(rf'^```{language}\n(.*?)^```', text_of(page), re.MULTILINE | re.DOTALL)


def code_spans(page):
    """Give what stands between single backticks, outside of fenced blocks."""
    prose = re.sub(r'^```.*?^```', '', text_of(page), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r'`([^`\n]+)`', prose)


def commands(page):
    """Give every shell command as a list of words: of bash blocks, and of code spans."""
    lines = [line for block in code_blocks(page, 'bash')
             for line in block.replace('\\\n', ' ').splitlines()]
    lines += [span for span in code_spans(page)
              if span.startswith(('asyncppo ', 'make ', 'ros2 ', '--'))]
    found = [shlex.split(line, comments=True) for line in lines]
    return [words for words in found if words]


ALL_COMMANDS = [pytest.param(page, words, id=f'{page.name}: {" ".join(words)[:70]}')
                for page in PAGES for words in commands(page)]


def own_options(verb, bench='learning'):
    """Read from the sources which options a verb, or a bench, declares beside the settings."""
    if verb == 'train-local':
        return own_options('train') - {'--namespace', *options_in('cluster/ray_command.py')}
    if verb == 'bench':
        # The scripts of peers have the folder of that name.
        return {'--help', *options_in(
            f'tools/bench/{"against_peers" if bench == "peers" else bench}.py')}
    options = {'--help', *options_in(VERBS[verb][0].split('.', 1)[1].replace('.', '/') + '.py')}
    return options | set(options_in('cluster/ray_command.py')) if verb == 'train' else options


def options_in(file):
    """Read the names of the options that a module declares."""
    calls = [node for node in ast.walk(ast.parse(source_of(file)))
             if isinstance(node, ast.Call) and getattr(node.func, 'attr', '') == 'add_argument']
    return [name.value for call in calls for name in call.args]


def launch_arguments(file):
    """
    Read name and default of every argument of a launch file, without importing launch.

    A default of None is computed: it is the interpreter of the launch.
    """
    tree = ast.parse((ROOT / 'launch' / file).read_text())
    table = next(node.value for node in tree.body if isinstance(node, ast.Assign)
                 and node.targets[0].id == 'ARGUMENTS')
    return {name.value: default.value if isinstance(default, ast.Constant) else None
            for name, default, _ in (entry.elts for entry in table.elts)}


def table_after(page, line):
    """Give the rows, as lists of cells, of the first table that follows a line."""
    lines = text_of(page).splitlines()
    start = next(i for i in range(lines.index(line), len(lines)) if lines[i].startswith('|'))
    rows = []
    for text in lines[start + 2:]:
        if not text.startswith('|'):
            break
        rows.append([cell.strip() for cell in text.strip('|').split('|')])
    return rows


def source_of(*files):
    return '\n'.join((ROOT / 'asyncppo_ros' / file).read_text() for file in files)


def literal(file, name):
    """Give the value of a constant of a module, without importing it."""
    tree = ast.parse(source_of(file))
    return next(ast.literal_eval(node.value) for node in tree.body
                if isinstance(node, ast.Assign) and node.targets[0].id == name)


def services_of(node):
    """Read from its source what std_srvs/Trigger services a node of a robot has, below ~/."""
    source = source_of(f'nodes/{node}.py')
    if node == 'policy_node':
        return set(re.findall(r"\('(\w+)', self\._\w+\)", source))
    return set(re.findall(r"create_service\(Trigger, '~/(\w+)'", source))


def check_settings(words, allowed):
    """Check that every ``--word`` is an allowed option, or a setting that takes its value."""
    for position, word in enumerate(words):
        if not word.startswith('--') or word in allowed:
            continue
        name = word[2:].partition('=')[0]
        assert name in SETTINGS, f'{word} is neither a setting nor an option'
        value = word.partition('=')[2] or (words[position + 1:] or [''])[0]
        if value and not value.startswith('--') and not value.isupper():
            check_value(name, value)


def check_value(name, text):
    build(Config, {name: parse_text(Config, name, text)})


@pytest.mark.parametrize('page, words', ALL_COMMANDS)
def test_command_exists(page, words):
    program, *rest = words
    if program.endswith(('bin/activate', 'setup.bash')) or program in ('export', 'source'):
        return
    if program == 'asyncppo':
        check_asyncppo(rest)
    elif program == 'make':
        check_make(rest)
    elif program == 'ros2':
        check_ros2(rest)
    elif program in ('policy_node', 'sim_robot_node'):
        check_executable(program, rest)
    elif program.startswith('--'):
        # A code span such as `--seed 1`: an option of some verb, or a setting.
        if program not in FOREIGN:
            check_settings(words, set().union(*map(own_options, VERBS)))
        check_ros_parameters(words)


def check_asyncppo(words):
    verb, *rest = words
    assert verb in VERBS, f'asyncppo {verb}: no such verb'
    if verb == 'bench' and rest:
        assert rest[0] in BENCHES, f'asyncppo bench {rest[0]}: no such bench'
        check_settings(rest, own_options(verb, rest[0]))
        return
    check_settings(rest, own_options(verb))
    check_config_files(rest)
    if verb == 'eval':
        given = {word[2:] for word in rest if word.startswith('--')} & set(SETTINGS)
        rooms = literal('tools/closed_loop.py', 'ROOMS')
        decided = literal('tools/closed_loop.py', 'DECIDED')
        assert not given or '--ros' in rest, f'{given}: only with --ros'
        assert all(name.startswith(rooms) and name not in decided for name in given), given


def check_config_files(words):
    for word in words:
        if word.startswith('config/'):
            assert (ROOT / word).is_file(), f'{word}: no such file'


def check_executable(name, words):
    assert f"'{name} = asyncppo_ros." in (ROOT / 'setup.py').read_text(), name
    assert not words or words[0] == '--ros-args', words
    check_config_files(words)
    check_ros_parameters(words)


def check_make(words):
    makefile = (ROOT / 'Makefile').read_text()
    targets = re.search(r'^\.PHONY: (.*)$', makefile, re.MULTILINE).group(1).split()
    folder = 'src/asyncppo_ros'
    for word in words:
        if '=' in word:
            variable = word.partition('=')[0]
            assert re.search(rf'^{variable} \?=', makefile, re.MULTILINE), f'make {word}'
        elif word not in ('-C', folder):
            assert word in targets, f'make {word}: no such target'
    tests = [word.partition('=')[2] for word in words if word.startswith('TESTS=')]
    assert all((ROOT / name).exists() for name in tests if name and '-' not in name), tests


def check_ros2(words):
    if words[0] == 'launch':
        package, file, *arguments = words[1:] or ['asyncppo_ros', 'train.launch.py']
        assert package == 'asyncppo_ros' and file in LAUNCH_FILES, f'ros2 launch {package} {file}'
        for argument in arguments:
            name, separator, value = argument.partition(':=')
            assert separator and name in launch_arguments(file), f'{file} {argument}'
            check_config_files([value])
            if name == 'robot' and '.' not in value:
                assert (ROOT / f'config/robots/{value}.yaml').is_file(), argument
    elif words[0] == 'run' and words[1:]:
        package, executable, *rest = words[1:]
        assert package == 'asyncppo_ros', words
        assert f"'{executable} = asyncppo_ros." in (ROOT / 'setup.py').read_text(), executable
        if executable == 'asyncppo':
            check_asyncppo(rest)
        elif executable == 'plots':
            source = (ROOT / 'asyncppo_ros/nodes/plots.py').read_text()
            assert all(f"'{word}'" in source for word in rest if word.startswith('--')), rest
        else:
            check_executable(executable, rest)
    elif words[:2] == ['service', 'call']:
        node, name = words[2].rsplit('/', 2)[-2:]
        known = {'learner': ('pause', 'resume', 'save_checkpoint'),
                 'policy_node': services_of('policy_node'),
                 'sim_robot': services_of('sim_robot_node'),
                 'robot_environment': services_of('robot_control')}
        assert name in known[node] and words[3:] == ['std_srvs/srv/Trigger'], words
    elif words[:2] == ['lifecycle', 'set']:
        assert words[2].endswith('/policy_node') and words[3] in LIFECYCLE, words
    elif words[:2] == ['param', 'describe']:
        assert words[3] in SETTINGS, words


def check_ros_parameters(words):
    for name, separator, value in (word.partition(':=') for word in words):
        if separator and name not in ROS_OWN:
            assert name in SETTINGS, f'{name}:= is no setting'
            check_value(name, value)


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_launch_arguments_and_settings_in_the_text_exist(page):
    known = set().union(*(launch_arguments(file) for file in LAUNCH_FILES)) | set(SETTINGS)
    for span in code_spans(page):
        for name in re.findall(r'([\w.]+):=', span):
            assert name in known | set(ROS_OWN), f'{span}: no such argument'
        # a whole span such as `learner.target_lag`: a group of the settings and a name; or with
        # its value, `learner.pacing: false`
        found = re.fullmatch(rf'((?:{GROUPS})(?:\.[a-z_]+)+)(?:: (.+))?', span)
        if found and not span.endswith(('.safetensors', '.yaml', '.py')):
            assert found[1] in SETTINGS, span
            if found[2]:
                check_value(found[1], found[2])


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_settings_in_yaml_examples_exist(page, tmp_path):
    for number, block in enumerate(code_blocks(page, 'yaml')):
        file = tmp_path / f'{number}.yaml'
        file.write_text(block)
        values = read_yaml(file)
        assert values, block
        build(Config, values)


def test_every_verb_is_told():
    told = {words[1] for words in commands(PAGES[0]) if words[0] == 'asyncppo'}
    assert told == set(VERBS)


@pytest.mark.parametrize('file', LAUNCH_FILES)
def test_table_of_launch_arguments(file):
    page = next(page for page in PAGES if f'`{file}`:' in text_of(page).splitlines())
    rows = {cells[0].strip('`'): cells[1] for cells in table_after(page, f'`{file}`:')}
    arguments = launch_arguments(file)
    assert list(rows) == list(arguments)
    for name, default in arguments.items():
        computed = 'the one of `ros2`'
        expected = computed if default is None else f'`{default}`' if default else ''
        assert rows[name] == expected, name


@pytest.mark.parametrize('title', ['setting', 'setting of a robot'])
def test_table_of_settings(title):
    rows = table_after(PAGES[0], f'| {title} | default | meaning |')
    assert len(rows) >= 12
    for name, default, *_ in rows:
        value, info = SETTINGS[name.strip('`')]
        word = next((word for word, number in info.words.items() if number == value), None)
        text = word or (', '.join(map(str, value)) if isinstance(value, tuple) else
                        str(value).lower() if isinstance(value, bool) else str(value))
        assert default == (f'`{text}`' if text else ''), name


def test_table_of_metrics():
    assert metrics_table() in text_of(ROOT / 'docs' / 'metrics.md')


def test_metrics_to_look_at_first_exist():
    told = {name for _, names in table_after(PAGES[0], '## Metrics')
            for name in re.findall(r'`([a-z_0-9]+)`', names)}
    assert len(told) > 10 and told <= {*LEARNER_METRICS, *EVALUATOR_METRICS}


def test_table_of_tasks():
    pytest.importorskip('mujoco')
    from asyncppo_ros.simulation.registry import TASKS
    told = [name.strip('`') for name, *_ in table_after(PAGES[0], '## Tasks')]
    assert told == [*TASKS, 'gymnasium:ID']


def test_topics_and_services_exist():
    learner = (ROOT / 'asyncppo_ros/nodes/learner_node.py').read_text()
    policy = (ROOT / 'asyncppo_ros/nodes/qos.py').read_text()
    evaluator = (ROOT / 'asyncppo_ros/nodes/evaluator_node.py').read_text()
    assert "f'~/metrics/{name}'" in learner and "super().__init__('learner'" in learner
    assert "f'~/metrics/{name}'" in evaluator and "super().__init__('evaluator'" in evaluator
    assert "'~/evaluation'" in evaluator
    known = {'policy', '/diagnostics', 'learner/metrics/NAME', 'evaluator/metrics/NAME',
             'evaluator/evaluation',
             *(f'learner/metrics/{name}' for name in LEARNER_METRICS),
             *(f'evaluator/metrics/{name}' for name in EVALUATOR_METRICS)}
    assert "TOPIC = 'policy'" in policy and "'/diagnostics'" in learner
    for name in ('pause', 'resume', 'save_checkpoint'):
        assert f"'{name}'" in learner
        known.add(f'learner/{name}')
    tables = (table_after(PAGES[0], '## Topics, services, QoS')
              + table_after(PAGES[0], '| service (`std_srvs/Trigger`) | effect |'))
    for name, *_ in tables:
        assert name.strip('`') in known, name
    nodes = {'learner', 'evaluator'}
    for page in PAGES:
        for name in re.findall(r'(?<![\w.])/asyncppo/([\w/]+)', text_of(page)):
            assert name in known | nodes, f'{page.name}: /asyncppo/{name}'


def test_qos_of_the_policy_is_as_told():
    policy = (ROOT / 'asyncppo_ros/nodes/qos.py').read_text()
    told = table_after(PAGES[0], '## Topics, services, QoS')[0][-1]
    assert told == 'RELIABLE, TRANSIENT_LOCAL, KEEP_LAST 1'
    for word in ('ReliabilityPolicy.RELIABLE', 'DurabilityPolicy.TRANSIENT_LOCAL',
                 'HistoryPolicy.KEEP_LAST, depth=1'):
        assert word in policy


def check_robot_topics(rows, source):
    """Check every name and type of a table of topics against the code of its node."""
    for name, types, *_ in rows:
        for span in re.findall(r'`([^`]+)`', name):
            if re.match(rf'({GROUPS})\.', span):
                assert span in SETTINGS, span
                continue
            text = span.replace('NAME', '{name}')
            default = any(text in str(value) for key, (value, _) in SETTINGS.items()
                          if key.startswith('robot.'))
            assert f"'{text}'" in source or default, span
        for span in re.findall(r'`([^`]+)`', types):
            assert re.search(rf'\b{span.rpartition("/")[2]}\b', source), span


def test_topics_and_services_of_a_policy_node():
    source = source_of(*(f'nodes/{name}.py' for name in (
        'policy_node', 'policy_deployment', 'policy_estop', 'policy_live', 'policy_reports',
        'robot_link', 'robot_messages', 'qos')))
    rows = table_after(PAGES[0], '| topic of `policy_node` | type | direction | QoS |')
    check_robot_topics(rows, source)
    told = {name.strip('`') for name, *_ in rows}
    published = {name.replace('{name}', 'NAME')
                 for name in re.findall(r" publisher\(\w+, f?'([^']+)'", source)}
    assert len(published) == 4 and published <= told
    assert {qos for *_, qos in rows} == {*QOS, 'metrics'}
    services = table_after(PAGES[0], '| service of `policy_node` (`std_srvs/Trigger`) | effect |')
    assert {name.strip('`') for name, _ in services} == {
        f'~/{name}' for name in services_of('policy_node')}
    assert len(services) == 5


def test_metrics_and_states_of_a_policy_node():
    names = literal('nodes/policy_timing.py', 'NAMES')
    tree = ast.parse(source_of('nodes/policy_reports.py'))
    more = next(node.value for node in tree.body if isinstance(node, ast.Assign)
                and node.targets[0].id == 'METRICS')
    metrics = [*names, *(entry.value for entry in more.elts if isinstance(entry, ast.Constant))]
    paragraph = re.search(r'^NAME is one of (.*?)\. ', text_of(PAGES[0]), re.MULTILINE | re.DOTALL)
    assert re.findall(r'`(\w+)`', paragraph[1]) == metrics
    states = [row[0].strip('`') for row in table_after(ROOT / 'docs/safety.md', '## States')]
    assert states == ['unconfigured', *(mode.value.replace(' ', '_') for mode in Mode)]


def test_qos_of_a_robot_is_as_told():
    source = source_of('nodes/qos.py')
    told = dict(table_after(PAGES[0], '| QoS | profile |'))
    for word, name in QOS.items():
        profile = re.search(rf'^{name} = QoSProfile\((.*?)\)$', source, re.M | re.S)[1]
        assert 'HistoryPolicy.KEEP_LAST, depth=1' in profile
        kinds = [re.search(rf'{kind}Policy\.(\w+)', profile)[1]
                 for kind in ('Reliability', 'Durability')]
        assert told[word].startswith(f'{", ".join(kinds)}, KEEP_LAST 1:'), word


def test_topics_and_services_of_a_simulated_robot():
    page = ROOT / 'docs' / 'deploy.md'
    source = source_of('nodes/sim_robot_node.py', 'nodes/robot_messages.py')
    rows = table_after(page, '| topic of `sim_robot_node` | type | direction |')
    check_robot_topics(rows, source)
    published = re.findall(r"create_publisher\(\s*\w+, '([^']+)'", source)
    told = {name.strip('`') for name, *_ in rows}
    assert set(published) == {'/clock', '~/episode'} and set(published) <= told
    services = table_after(page, '| service of `sim_robot_node` | effect |')
    assert services[0][0].startswith('`~/reset`') and services_of('sim_robot_node') == {'reset'}


def test_outputs_and_commands_are_those_of_the_code():
    page = ROOT / 'docs' / 'deploy.md'
    rows = table_after(page, '| `robot.output` | message | default topic |')
    choices = SETTINGS['robot.output'][1].choices
    assert [name.strip('`') for name, *_ in rows] == list(choices)
    for name, _, topic in rows:
        assert topic.strip('`') == output_topic(name.strip('`')), name
    told = {span for kinds, *_ in table_after(page, '## What people ask for')
            for span in re.findall(r'`(\w+)`', kinds)}
    assert told == set(COMMAND_TYPES)
    resets = [name.strip('`') for name, _ in table_after(
        page, '| `actor.reset` | how an episode begins |')]
    assert resets == list(SETTINGS['actor.reset'][1].choices)


def test_causes_of_refused_samples_exist():
    source = source_of(*(f'robot/{name}.py' for name in (
        'samples', 'joint_samples', 'base_samples', 'measured')))
    rows = table_after(ROOT / 'docs' / 'deploy.md', '## What a robot must tell')
    causes = {cause for _, text in rows for part in re.findall(r'\(([^)]*)\)', text)
              for cause in re.findall(r'`([^`]+)`', part)}
    assert causes == {'joint twice', 'lengths', 'not finite', 'quaternion', 'stamp', 'reordered'}
    assert all(f"Refusal('{cause}'" in source for cause in causes)


def test_metadata_of_an_exported_policy_is_as_told():
    pytest.importorskip('onnxruntime')
    from made_policies import legs_task, policy_bytes

    from asyncppo_ros.policy.onnx_export import metadata_of
    from asyncppo_ros.robot.artefact import parse_artefact
    said = metadata_of(parse_artefact(policy_bytes(legs_task())).card)
    told = {name for names, _ in table_after(ROOT / 'docs' / 'deploy.md', '| metadata | what |')
            for name in re.findall(r'`(\w+)`', names)}
    assert told == set(said)


READING_ORDERS = ('To read the code in the order of the data:',
                  'On the robot, in the order of a control step:')


@pytest.mark.parametrize('title', READING_ORDERS)
def test_reading_order_names_what_exists(title):
    rows = table_after(PAGES[0], title)
    assert len(rows) >= 9
    for file, name, _ in rows:
        tree = ast.parse((ROOT / 'asyncppo_ros' / file.strip('`')).read_text())
        assert name.strip('`') in {node.name for node in tree.body if hasattr(node, 'name')}, file


def anchors(page):
    """Give the anchors that GitHub makes of the headings."""
    prose = re.sub(r'^```.*?^```', '', text_of(page), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r'[^\w\- ]', '', heading.lower()).strip().replace(' ', '-')
            for heading in re.findall(r'^#+ (.*)$', prose, re.MULTILINE)}


def links(page):
    text = re.sub(r'^```.*?^```', '', text_of(page), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r'\]\(([^)\s]+)\)', text) + re.findall(r'^\[\w+\]: (\S+)$', text,
                                                              re.MULTILINE)
    return [link for link in found if '://' not in link]


@pytest.mark.parametrize('page, link', [
    pytest.param(page, link, id=f'{page.name}: {link}')
    for page in PAGES for link in dict.fromkeys(links(page))])
def test_link_leads_somewhere(page, link):
    file, _, anchor = link.partition('#')
    target = page.parent / file if file else page
    assert target.is_file(), f'{link}: no such file'
    if anchor:
        assert anchor in anchors(target), f'{link}: no such heading'


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_files_named_in_the_text_exist(page):
    pattern = r'(?:config|launch|models|docs|test|requirements|\.github|\.ci)/[\w./-]+'
    for span in code_spans(page):
        # not config/TASK.yaml
        if re.fullmatch(pattern, span) and 'TASK' not in span:
            assert (ROOT / span).exists(), span


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_reads_well_in_a_terminal(page):
    for number, line in enumerate(text_of(page).splitlines(), 1):
        assert len(line) <= 120, f'{page.name}:{number}: {len(line)} columns'
        assert not line.startswith('\t') and line == line.rstrip(), f'{page.name}:{number}'


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_python_examples_compile_and_import_what_exists(page):
    for block in code_blocks(page, 'python'):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith('asyncppo_ros'):
                if node.module.endswith(('train_local', 'simulation.task')):
                    pytest.importorskip('torch')
                module = importlib.import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name), f'{node.module}.{alias.name}'


def test_the_example_task_works_as_written(tmp_path, monkeypatch):
    pytest.importorskip('mujoco')
    from asyncppo_ros.simulation import registry
    page = ROOT / 'docs' / 'tasks.md'
    package = tmp_path / 'my_robot'
    package.mkdir()
    (package / '__init__.py').touch()
    (package / 'pointer.xml').write_text(code_blocks(page, 'xml')[0])
    task, *others = code_blocks(page, 'python')
    judged = next(block for block in others if 'class JudgedPoint' in block)
    (package / 'tasks.py').write_text(f'{task}\n\n{judged}')
    monkeypatch.syspath_prepend(tmp_path)
    environment = registry.make('my_robot.tasks:Point', 4, 0)
    registry.check(environment)
    card = environment.describe()
    assert card['deployable'] and 'my_robot.tasks:angle_error' in {
        term['term'] for term in card['observation']}
    environment = registry.make('my_robot.tasks:JudgedPoint', 4, 0, privileged=True)
    registry.check(environment)
    assert environment.critic_observation.shape == (4, 3) and environment.describe()['deployable']


def test_resume_of_latest_keeps_the_link(tmp_path, monkeypatch):
    """The README resumes ``runs/latest``: afterwards it must still point to the run."""
    from asyncppo_ros.run import create, resolve, resume
    monkeypatch.chdir(tmp_path)
    run, _ = create(resolve({'task': 'reach'}))
    run.checkpoint.mkdir()
    (run.checkpoint / 'checkpoint.safetensors').touch()
    resume('runs/latest', {})
    assert Path('runs/latest').resolve() == run.folder
