// fetch.js URL: the global fetch through a proxy. Node 24 and later read the proxy variables themselves when asked to
// (NODE_USE_ENV_PROXY=1); before, the undici package gives fetch a dispatcher that uses one.
'use strict';
const major = Number(process.versions.node.split('.')[0]);

if (major < 24) {
	const {ProxyAgent, setGlobalDispatcher} = require('undici');
	const secure = process.argv[2].startsWith('https:');
	setGlobalDispatcher(new ProxyAgent(secure ? process.env.https_proxy : process.env.http_proxy));
}

function told(error) {
	const lines = [];
	for (let e = error; e; e = e.cause)
		lines.push(`${e.name}: ${e.message} ${e.code || ''}`);
	return lines.join('\n');
}

fetch(process.argv[2], {signal: AbortSignal.timeout(10000)}).then(async (r) => {
	process.stdout.write(await r.text());
	process.exitCode = r.ok ? 0 : 3;
}).catch((e) => {
	console.error(told(e));
	process.exit(4); // undici before 6 leaves the timer of the connection it gave up for 10 s
});
