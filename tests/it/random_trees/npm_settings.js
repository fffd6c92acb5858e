// Prints the settings of the project that npm reads in each of the folders given as arguments: one
// line of JSON a setting, with the file that it comes from. Uses the module with which npm itself
// reads them.
'use strict'
const fs = require('node:fs')
const path = require('node:path')
const { createRequire } = require('node:module')

const npm = process.env.NPM
const fromNpm = createRequire(fs.realpathSync(npm))
const Config = fromNpm('@npmcli/config')
const definitions = fromNpm('@npmcli/config/lib/definitions')

async function main () {
  for (const cwd of process.argv.slice(2)) {
    // npm does so as well: its working directory has no links in it.
    const folder = fs.realpathSync(cwd)
    process.chdir(folder)
    const config = new Config({
      ...definitions,
      npmPath: path.dirname(path.dirname(fs.realpathSync(npm))),
      argv: [process.execPath, npm],
      cwd: folder,
    })
    await config.load()
    const project = config.data.get('project')
    for (const [name, value] of Object.entries(project.data)) {
      console.log(JSON.stringify({ file: project.source, name, value: String(value) }))
    }
  }
}

main().catch(error => {
  console.error(error)
  process.exitCode = 1
})
